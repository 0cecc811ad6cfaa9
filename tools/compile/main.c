// SPDX-License-Identifier: MIT
/* txda-compile: compiles a Hugging Face model directory or a GGUF file to a case dir. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "confined.h"
#include "clock.h"
#include "tool_line.h"
#include "tool_run.h"

enum { EXIT_INTERRUPTED = 130 };

static volatile sig_atomic_t interrupted;

static const char usage[] =
	"Usage: txda-compile HF_DIR -o CASE [options]     compile a Hugging Face model directory\n"
	"       txda-compile FILE.gguf -o CASE            compile a GGUF file\n"
	"       txda-compile --synthetic NAME -o CASE     compile random weights of a known shape\n"
	"       txda-compile --dump CASE|kcore.bin        disassemble a program\n"
	"       txda-compile --key HF_DIR [options]       print the cache key of the case dir\n"
	"\n"
	"  -o, --output CASE     the case dir to create\n"
	"      --tp N            tensor-parallel degree, 1 to 8\n"
	"      --ep              expert parallelism: whole experts on each chip\n"
	"      --weights TYPE    keep (default), bf16, f16, w8 or w4\n"
	"      --hidden          add an output of the last hidden states (default for embedding "
	"models)\n"
	"      --states          the same for all tokens of a step, as the program of --mtp needs\n"
	"      --inputs TYPE     tokens (default) or embeds: embeddings come from the host\n"
	"      --program NAME    step (default), or for a model in two programs: prefill, decode\n"
	"      --share CASE      link the weights of CASE, which must be identical\n"
	"      --mtp             the program of the multi-token prediction layer\n"
	"      --kv TYPE         bf16 (default) or int8: keys and values in the cache\n"
	"      --group N         weights that share a scale in w8 and w4: 32, 64 or 128\n"
	"                        (default: 128 in w8, 32 in w4)\n"
	"      --block-size N    tokens of a KV block: 16 to 1024 (default: by the model)\n"
	"      --max-tokens N    maximum tokens of a step (2048)\n"
	"      --max-seqs N      maximum sequences of a step (256)\n"
	"      --max-rows N      maximum rows of logits of a step (256)\n"
	"      --max-context N   maximum positions of a sequence (the model's limit)\n"
	"      --topk N          candidates per row, 1 to 128 (64)\n"
	"      --max-image-tokens N  maximum tokens of images encoded together (4096)\n"
	"      --unused-tensors ACTION  refuse (default) or ignore tensors of the model that the "
	"programs\n"
	"                        do not use and that may change results\n"
	"      --name NAME       the model's name (the directory's)\n"
	"      --jobs N          threads (one per CPU)\n"
	"      --force           replace CASE\n"
	"      --progress STYLE  bar, plain or none (bar on a terminal)\n"
	"  -q, --quiet           no notes, no summary, no progress\n"
	"  -h, --help\n"
	"  -V, --version\n";

enum {
	OPTION_TP = 256,
	OPTION_EP,
	OPTION_KV,
	OPTION_HIDDEN,
	OPTION_STATES,
	OPTION_INPUTS,
	OPTION_PROGRAM,
	OPTION_SHARE,
	OPTION_MTP,
	OPTION_WEIGHTS,
	OPTION_GROUP,
	OPTION_BLOCK,
	OPTION_TOKENS,
	OPTION_SEQS,
	OPTION_ROWS,
	OPTION_CONTEXT,
	OPTION_TOPK,
	OPTION_IMAGE_TOKENS,
	OPTION_UNUSED,
	OPTION_NAME,
	OPTION_JOBS,
	OPTION_FORCE,
	OPTION_PROGRESS,
	OPTION_DUMP,
	OPTION_KEY,
	OPTION_SYNTHETIC,
};

static const struct option options[] = {
	{"output", required_argument, NULL, 'o'},
	{"tp", required_argument, NULL, OPTION_TP},
	{"kv", required_argument, NULL, OPTION_KV},
	{"hidden", no_argument, NULL, OPTION_HIDDEN},
	{"inputs", required_argument, NULL, OPTION_INPUTS},
	{"program", required_argument, NULL, OPTION_PROGRAM},
	{"share", required_argument, NULL, OPTION_SHARE},
	{"states", no_argument, NULL, OPTION_STATES},
	{"mtp", no_argument, NULL, OPTION_MTP},
	{"ep", no_argument, NULL, OPTION_EP},
	{"weights", required_argument, NULL, OPTION_WEIGHTS},
	{"group", required_argument, NULL, OPTION_GROUP},
	{"block-size", required_argument, NULL, OPTION_BLOCK},
	{"max-tokens", required_argument, NULL, OPTION_TOKENS},
	{"max-seqs", required_argument, NULL, OPTION_SEQS},
	{"max-rows", required_argument, NULL, OPTION_ROWS},
	{"max-context", required_argument, NULL, OPTION_CONTEXT},
	{"topk", required_argument, NULL, OPTION_TOPK},
	{"max-image-tokens", required_argument, NULL, OPTION_IMAGE_TOKENS},
	{"unused-tensors", required_argument, NULL, OPTION_UNUSED},
	{"name", required_argument, NULL, OPTION_NAME},
	{"jobs", required_argument, NULL, OPTION_JOBS},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"progress", required_argument, NULL, OPTION_PROGRESS},
	{"quiet", no_argument, NULL, 'q'},
	{"dump", no_argument, NULL, OPTION_DUMP},
	{"key", no_argument, NULL, OPTION_KEY},
	{"synthetic", required_argument, NULL, OPTION_SYNTHETIC},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-compile", usage, options, "oq");

struct command {
	struct compile_job job;
	const char *path, *synthetic;
	bool dump, key;
};

static void on_signal(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* The first signal stops the compile cleanly, a second one immediately. */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	/* Exceeding a file size limit is an error, like a full disk. */
	signal(SIGXFSZ, SIG_IGN);
}

static int fail(const char *text)
{
	fprintf(stderr, "txda-compile: %s\n", text);
	return interrupted ? EXIT_INTERRUPTED : EXIT_FAILURE;
}

/* Options that are numbers. */
static uint32_t *number_option(struct compile_options *o, int option)
{
	switch (option) {
	case OPTION_TP: return &o->tp;
	case OPTION_GROUP: return &o->group;
	case OPTION_BLOCK: return &o->block_size;
	case OPTION_TOKENS: return &o->max_tokens;
	case OPTION_SEQS: return &o->max_seqs;
	case OPTION_ROWS: return &o->max_rows;
	case OPTION_CONTEXT: return &o->max_context;
	case OPTION_TOPK: return &o->topk;
	case OPTION_IMAGE_TOKENS: return &o->max_image_tokens;
	case OPTION_JOBS: return &o->jobs;
	default: return NULL;
	}
}

static int parse_option(struct command *c, int option)
{
	static const char *const weights[] = {"keep", "bf16", "f16", "w8", "w4", NULL};
	static const char *const caches[] = {"bf16", "int8", NULL};
	static const char *const inputs[] = {"tokens", "embeds", NULL};
	static const char *const programs[] = {"step", "prefill", "decode", NULL};
	static const char *const unused[] = {"refuse", "ignore", NULL};
	static const char *const styles[] = {"none", "plain", "bar", NULL};
	uint32_t *number = number_option(&c->job.options, option);
	int word;

	if (number)
		return tool_number(&line, 1, UINT32_MAX, number) ? 0 : -EINVAL;
	switch (option) {
	case 'o': c->job.case_path = line.value; return 0;
	case 'q':
		c->job.quiet = true;
		c->job.progress = PROGRESS_NONE;
		return 0;
	case OPTION_WEIGHTS:
		word = tool_word(&line, weights);
		c->job.options.weights = (enum weight_mode)word;
		return word < 0 ? word : 0;
	case OPTION_KV:
		word = tool_word(&line, caches);
		c->job.options.kv_int8 = word == 1;
		return word < 0 ? word : 0;
	case OPTION_PROGRESS:
		word = tool_word(&line, styles);
		c->job.progress = (enum progress_style)word;
		return word < 0 ? word : 0;
	case OPTION_INPUTS:
		word = tool_word(&line, inputs);
		c->job.options.embeds = word == 1;
		return word < 0 ? word : 0;
	case OPTION_PROGRAM:
		word = tool_word(&line, programs);
		c->job.options.role = word < 0 ? PROGRAM_STEP : (enum program_role)word;
		return word < 0 ? word : 0;
	case OPTION_UNUSED:
		word = tool_word(&line, unused);
		c->job.options.ignore_unused = word == 1;
		return word < 0 ? word : 0;
	case OPTION_SHARE: c->job.share = line.value; return 0;
	case OPTION_HIDDEN: c->job.options.hidden = true; return 0;
	case OPTION_STATES: c->job.options.states = true; return 0;
	case OPTION_MTP: c->job.options.mtp = c->job.options.hidden = true; return 0;
	case OPTION_EP: c->job.options.expert_parallel = true; return 0;
	case OPTION_NAME: c->job.options.name = line.value; return 0;
	case OPTION_FORCE: c->job.force = true; return 0;
	case OPTION_DUMP: c->dump = true; return 0;
	case OPTION_KEY: c->key = true; return 0;
	case OPTION_SYNTHETIC: c->synthetic = line.value; return 0;
	default: return -EINVAL;
	}
}

/* 0, or -EINVAL: end with line.status. */
static int parse_command(struct command *c, int argc, char **argv)
{
	int option;

	while ((option = tool_option(&line, argc, argv)) > 0)
		if (parse_option(c, option))
			return -EINVAL;
	if (option < 0)
		return -EINVAL;
	c->path = line.words[0];
	if (line.n_words > 1)
		tool_refuse(&line, "unexpected argument '%s'", line.words[1]);
	else if (c->path && c->synthetic)
		tool_refuse(&line, "--synthetic makes up its model: unexpected argument '%s'",
			    c->path);
	else if (c->dump && (c->key || c->synthetic))
		tool_refuse(&line, "--dump cannot be combined with --%s",
			    c->key ? "key" : "synthetic");
	else if (!c->path && !c->synthetic)
		tool_refuse(&line, c->dump ? "--dump needs a CASE or a kcore.bin"
					   : "no model is given: a directory, a GGUF file or "
					     "--synthetic NAME");
	else if (!c->dump && !c->key && !c->job.case_path)
		tool_refuse(&line, "no output is given: -o CASE");
	else
		return 0;
	return -EINVAL;
}

static void summarise(const struct command *c, const struct model *m,
		      const struct compile_result *result, double took)
{
	const struct compile_options *o = &c->job.options;

	if (c->job.quiet)
		return;
	fprintf(stderr,
		"%s: %s, %s, %u layers, %s, %u chip%s, %.1f MB of weights, %.1f KB a KV block of "
		"%u tokens, %.1f s\n",
		c->job.case_path, o->name, m->config.model_type, m->config.n_layers,
		result->weights, o->tp, o->tp > 1 ? "s" : "", (double)result->weight_bytes / 1e6,
		(double)result->kv_block_bytes / 1e3, o->block_size, took);
}

static int run(struct command *c, struct model *m)
{
	struct compile_result result;
	struct tool_error error = {{0}};
	double start = clock_s();
	char key[33];

	if (model_resolve_options(m, &c->job.options, &error))
		return fail(error.text);
	if (c->key) {
		model_cache_key(m, &c->job.options, key);
		puts(key);
		return EXIT_SUCCESS;
	}
	c->job.model = m;
	if (m->compiled && !c->job.quiet)
		fprintf(stderr,
			"note: param_dir is a case dir (%s); the safetensors beside "
			"config.json are compiled\n",
			m->compiled);
	if (compile_run(&c->job, &result, &error))
		return fail(error.text);
	summarise(c, m, &result, clock_s() - start);
	return EXIT_SUCCESS;
}

static int confine(const struct command *c, struct tool_error *error)
{
	const struct compile_paths paths = {
		.model = c->path,
		.output = c->dump || c->key ? NULL : c->job.case_path,
		.share = c->job.share,
	};

	return compile_confine(&paths, error);
}

static int run_tool(int argc, char **argv)
{
	struct command c = {
		.job = {.options = COMPILE_OPTIONS_DEFAULT, .interrupted = &interrupted},
	};
	struct tool_error error = {{0}};
	struct model m;
	int r;

	c.job.progress = progress_default_style();
	r = parse_command(&c, argc, argv);
	if (r)
		return line.status;
	if (confine(&c, &error))
		return fail(error.text);
	if (c.dump)
		return compile_dump(c.path, &error) ? fail(error.text) : EXIT_SUCCESS;
	catch_signals();
	r = c.synthetic ? model_open_synthetic(c.synthetic, &m, &error)
			: model_open(c.path, &m, &error);
	if (r)
		return fail(error.text);
	r = run(&c, &m);
	model_close(&m);
	return r;
}

int main(int argc, char **argv)
{
	return tool_run("txda-compile", run_tool, argc, argv, EXIT_FAILURE);
}
