// SPDX-License-Identifier: MIT
/* Whole compiles of the fixtures into a temporary directory: what is there afterwards, and what is
 * not. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "unit.h"
#include "compile.h"
#include "crc32c.h"
#include "files.h"
#include "floats.h"
#include "graph.h"
#include "json.h"
#include "program_view.h"
#include "unused.h"

static struct tool_error error;
static char dir[64];
static const char *fixtures;

static const char *in_dir(const char *name)
{
	static char ring[4][256];
	static unsigned next;
	char *path = ring[next++ % 4];

	snprintf(path, sizeof(ring[0]), "%s/%s", dir, name);
	return path;
}

static const char *fixture(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", fixtures, name);
	return path;
}

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	assert_int_equal(system(command), 0);
}

static int compile(const char *model, const char *out, const struct compile_options *o, bool force)
{
	struct compile_job job = {.options = *o, .case_path = out, .force = force, .quiet = true};
	struct compile_result result;
	struct model m;
	int r;

	memset(&error, 0, sizeof(error));
	r = model_open(model, &m, &error);
	if (r)
		return r;
	job.model = &m;
	r = model_resolve_options(&m, &job.options, &error);
	if (!r)
		r = compile_run(&job, &result, &error);
	model_close(&m);
	return r;
}

/* A copy of the fixture @name in model/. */
static void copy_fixture(const char *name)
{
	shell("rm -rf %s/model && cp -rL %s %s/model && chmod -R u+w %s/model", dir, fixture(name),
	      dir, dir);
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/txda-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	shell("rm -r %s", dir);
	return 0;
}

/* Nothing but @expected entries is left, hidden ones included. */
static void check_entries(unsigned expected)
{
	struct dirent *entry;
	unsigned n = 0;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d)))
		n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(d);
	assert_int_equal(n, expected);
}

static double number(const cJSON *json, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

	assert_true(cJSON_IsNumber(item));
	return item->valuedouble;
}

/* Every file that model_info.json names is what it says. */
static void check_case(const char *path, unsigned tp)
{
	const cJSON *chips, *chip;
	char *text, *data;
	size_t bytes;
	cJSON *info;
	int dirfd = open(path, O_RDONLY | O_DIRECTORY);
	unsigned rank = 0;

	assert_true(dirfd >= 0);
	assert_int_equal(tool_read_file(dirfd, "model_info.json", 1 << 20, &text, &bytes, &error),
			 0);
	assert_int_equal(tool_json_parse(text, bytes, &info, &error), 0);
	free(text);
	assert_true(number(info, "format") == 1 && number(info, "tp") == tp);
	chips = cJSON_GetObjectItemCaseSensitive(info, "chips");
	assert_int_equal(cJSON_GetArraySize(chips), (int)tp);
	cJSON_ArrayForEach(chip, chips) {
		struct program_view v;

		assert_int_equal(tool_read_file(dirfd,
						cJSON_GetObjectItem(chip, "kcore")->valuestring,
						1 << 24, &data, &bytes, &error),
				 0);
		assert_int_equal(program_view(data, bytes, &v, &error), 0);
		assert_int_equal(v.header->rank, rank++);
		assert_int_equal(v.header->group_size, tp);
		assert_true((double)bytes == number(chip, "kcore_bytes"));
		assert_true((double)v.slots[0].bytes == number(chip, "param_bytes"));
		free(data);
		assert_int_equal(tool_read_file(dirfd,
						cJSON_GetObjectItem(chip, "param")->valuestring,
						1 << 30, &data, &bytes, &error),
				 0);
		assert_true((double)bytes == number(chip, "param_bytes"));
		assert_true((double)crc32c(0, data, bytes) == number(chip, "param_crc32c"));
		free(data);
	}
	assert_int_equal(faccessat(dirfd, "tokenizer.json", F_OK, 0), 0);
	cJSON_Delete(info);
	close(dirfd);
}

TEST(test_fixtures)
{
	static const char *const names[] = {"llama2",	 "llama31",    "qwen2-sharded", "qwen3",
					    "internlm3", "llama-gptq", "qwen3-fp8",	"qwen3moe",
					    "deepseek3", "gemma3"};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	unsigned i, tp;
	int w;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		for (tp = 1; tp <= 4; tp *= 2) {
			for (w = WEIGHTS_KEEP; w <= WEIGHTS_W4; w += tp == 1 ? 1 : 4) {
				o.tp = tp;
				o.weights = (enum weight_mode)w;
				if (compile(fixture(names[i]), in_dir("case"), &o, true))
					fail_msg("%s", error.text);
				check_case(in_dir("case"), tp);
			}
		}
	}
	check_entries(1);
	o.weights = WEIGHTS_KEEP;
	o.tp = 7;
	assert_true(compile(fixture("llama2"), in_dir("case"), &o, true) < 0);
	assert_non_null(strstr(error.text, "1, 2, 3, 4, 5, 6 would do"));
}

TEST(test_existing)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	shell("rm -rf %s/*", dir);
	assert_int_equal(compile(fixture("qwen3"), in_dir("case/"), &o, false), 0);
	assert_int_equal(compile(fixture("qwen3"), in_dir("case"), &o, false), -EEXIST);
	assert_non_null(strstr(error.text, "--force"));
	assert_int_equal(compile(fixture("llama2"), in_dir("case"), &o, true), 0);
	check_case(in_dir("case"), 1);
	/* What is not a case dir stays. */
	shell("mkdir %s/home && touch %s/home/letter && touch %s/file", dir, dir, dir);
	assert_int_equal(compile(fixture("llama2"), in_dir("home"), &o, true), -EEXIST);
	assert_int_equal(compile(fixture("llama2"), in_dir("file"), &o, true), -EEXIST);
	assert_int_equal(access(in_dir("home/letter"), F_OK), 0);
	assert_int_equal(compile(fixture("llama2"), in_dir("no/case"), &o, true), -ENOENT);
	assert_int_equal(compile(fixture("llama2"), in_dir(".."), &o, true), -EINVAL);
	/* An empty directory is as good as none; what a killed compile left is swept away. */
	shell("mkdir -p %s/empty %s/.empty.txda-new/chip0 && touch "
	      "%s/.empty.txda-new/chip0/param.bin",
	      dir, dir, dir);
	assert_int_equal(compile(fixture("llama2"), in_dir("empty"), &o, false), 0);
	check_case(in_dir("empty"), 1);
	check_entries(4);
}

TEST(test_failures)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	struct rlimit limit, old;

	shell("rm -rf %s/* && cp -r %s %s/model && chmod -R u+w %s/model", dir, fixture("qwen3"),
	      dir, dir);
	/* A file size limit is the nearest thing to a full disk. */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 300000;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
	check_entries(1);
	shell("sed -i 's/\"vocab_size\": 512/\"vocab_size\": 513/' %s/model/config.json", dir);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), -EINVAL);
	assert_non_null(strstr(error.text, "model.embed_tokens.weight"));
	assert_non_null(strstr(error.text, "expected the shape [513, 96], found [512, 96]"));
	shell("sed -i 's/\"vocab_size\": 513/\"vocab_size\": 512/;s/\"num_hidden_layers\": "
	      "3/\"num_hidden_layers\": 4/;"
	      "/layer_types/,/]/d' %s/model/config.json",
	      dir);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), -ENOENT);
	assert_non_null(strstr(error.text, "model.layers.3."));
	shell("truncate -s -1 %s/model/model.safetensors", dir);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), -EINVAL);
	shell("rm %s/model/model.safetensors", dir);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), -ENOENT);
	check_entries(1);
}

TEST(test_interrupt)
{
	static volatile sig_atomic_t stop = 1;
	struct compile_job job = {
		.options = COMPILE_OPTIONS_DEFAULT,
		.quiet = true,
		.interrupted = &stop,
	};
	struct compile_result result;
	struct model m;

	shell("rm -rf %s/*", dir);
	assert_int_equal(model_open_synthetic("qwen3-0.6b", &m, &error), 0);
	job.model = &m;
	job.case_path = in_dir("case");
	assert_int_equal(model_resolve_options(&m, &job.options, &error), 0);
	assert_int_equal(compile_run(&job, &result, &error), -EINTR);
	model_close(&m);
	check_entries(0);
}

static void key_of(const char *path, const struct compile_options *options, char key[33])
{
	struct compile_options o = *options;
	struct model m;

	assert_int_equal(model_open(path, &m, &error), 0);
	assert_int_equal(model_resolve_options(&m, &o, &error), 0);
	model_cache_key(&m, &o, key);
	model_close(&m);
}

/* A file that is written without a change of its times, as a page that is written already. */
struct mapped {
	uint8_t *at;
	size_t bytes;
	pthread_t thread;
	atomic_uint turns;
	atomic_bool stop;
};

static void map_file(const char *name, struct mapped *ret)
{
	int fd = open(in_dir(name), O_RDWR | O_CLOEXEC);
	struct stat st;

	assert_true(fd >= 0 && !fstat(fd, &st));
	*ret = (struct mapped){.bytes = (size_t)st.st_size};
	ret->at = mmap(NULL, ret->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(ret->at, MAP_FAILED);
	close(fd);
	/* Now the times are set. */
	for (size_t at = 0; at < ret->bytes; at += 4096)
		*(volatile uint8_t *)&ret->at[at] = *(volatile uint8_t *)&ret->at[at];
}

static void *keep_writing(void *arg)
{
	struct mapped *m = arg;
	uint64_t word;

	while (!atomic_load(&m->stop)) {
		word = atomic_fetch_add(&m->turns, 1);
		memcpy(m->at + m->bytes - sizeof(word), &word, sizeof(word));
	}
	return NULL;
}

/* Weights that change while they are packed are an error, whatever the file's times say. */
TEST(test_rewritten)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	struct mapped m;
	int r;

	copy_fixture("llama2");
	map_file("model/model.safetensors", &m);
	assert_int_equal(pthread_create(&m.thread, NULL, keep_writing, &m), 0);
	while (!atomic_load(&m.turns))
		sched_yield();
	/* On a busy machine nothing may be written from the first look to the last. */
	for (unsigned tries = 0; tries < 100; tries++) {
		shell("rm -rf %s/case", dir);
		r = compile(in_dir("model"), in_dir("case"), &o, true);
		if (r)
			break;
	}
	atomic_store(&m.stop, true);
	pthread_join(m.thread, NULL);
	munmap(m.at, m.bytes);
	assert_int_equal(r, -ESTALE);
	assert_non_null(strstr(error.text, "model.safetensors changed"));
	check_entries(1);
}

/* What was parsed is what is compiled and copied. */
TEST(test_rewritten_header)
{
	static const char *const names[] = {"model/config.json", "model/model.safetensors"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct compile_job job = {.options = COMPILE_OPTIONS_DEFAULT, .quiet = true};
		struct compile_result result;
		struct mapped mapped;
		struct model m;

		copy_fixture("llama2");
		map_file(names[i], &mapped);
		assert_int_equal(model_open(in_dir("model"), &m, &error), 0);
		mapped.at[8]++;
		job.model = &m;
		job.case_path = in_dir("case");
		assert_int_equal(model_resolve_options(&m, &job.options, &error), 0);
		assert_int_equal(compile_run(&job, &result, &error), -ESTALE);
		assert_non_null(strstr(error.text, strchr(names[i], '/') + 1));
		model_close(&m);
		munmap(mapped.at, mapped.bytes);
	}
}

TEST(test_key)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	char a[33], b[33];

	shell("rm -rf %s/* && cp -r %s %s/model && chmod -R u+w %s/model", dir, fixture("qwen3"),
	      dir, dir);
	key_of(in_dir("model"), &o, a);
	key_of(in_dir("model/."), &o, b);
	assert_string_equal(a, b);
	o.tp = 1;
	o.jobs = 3;
	key_of(in_dir("model"), &o, b);
	assert_string_equal(a, b);
	o.tp = 2;
	key_of(in_dir("model"), &o, b);
	assert_string_not_equal(a, b);
	o.tp = 1;
	o.weights = WEIGHTS_W8;
	key_of(in_dir("model"), &o, b);
	assert_string_not_equal(a, b);
	o.weights = WEIGHTS_KEEP;
	shell("touch -d '2001-01-01' %s/model/model.safetensors", dir);
	key_of(in_dir("model"), &o, b);
	assert_string_not_equal(a, b);
}

/* Takes quantization_config out of a model's config.json; puts it into @file without its method. */
static void move_quantisation(const char *model, const char *file)
{
	int dirfd = open(model, O_RDONLY | O_DIRECTORY);
	cJSON *config, *quantisation;
	char *text;
	size_t bytes;
	FILE *f;

	assert_int_equal(tool_read_file(dirfd, "config.json", 1 << 20, &text, &bytes, &error), 0);
	assert_int_equal(tool_json_parse(text, bytes, &config, &error), 0);
	free(text);
	close(dirfd);
	quantisation = cJSON_DetachItemFromObject(config, "quantization_config");
	assert_non_null(quantisation);
	cJSON_DeleteItemFromObject(quantisation, "quant_method");
	cJSON_DeleteItemFromObject(quantisation, "checkpoint_format");
	for (unsigned i = 0; i < 2; i++) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", model, i ? file : "config.json");
		text = cJSON_Print(i ? quantisation : config);
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(text, f);
		fclose(f);
		free(text);
	}
	cJSON_Delete(config);
	cJSON_Delete(quantisation);
}

/* All that the texts are made of is in the case dir, also behind links as in the hub's cache. */
TEST(test_texts)
{
	static const char *const names[] = {
		"special_tokens_map.json",
		"chat_template.jinja",
		"additional_chat_templates/rag.jinja",
		"additional_chat_templates/tool_use.jinja",
	};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	char keys[2][33];

	copy_fixture("llama2");
	shell("mkdir %s/blobs", dir);
	shell("mkdir %s/model/additional_chat_templates", dir);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		shell("echo '{\"%zu\": 0}' >%s/blobs/%zu && ln -s %s/blobs/%zu %s/model/%s", i, dir,
		      i, dir, i, dir, names[i]);
	shell("echo no template >%s/model/additional_chat_templates/README.md", dir);
	key_of(in_dir("model"), &o, keys[0]);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, false), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		shell("cmp %s/blobs/%zu %s/case/%s", dir, i, dir, names[i]);
	shell("test $(ls %s/case/additional_chat_templates | wc -l) = 2", dir);
	shell("echo >>%s/blobs/3", dir);
	key_of(in_dir("model"), &o, keys[1]);
	assert_string_not_equal(keys[0], keys[1]);
	shell("for i in $(seq 63); do echo >%s/model/additional_chat_templates/$i.jinja; done",
	      dir);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, true), -E2BIG);
	assert_non_null(strstr(error.text, "65 templates; the limit is 64"));
}

/* Older quantised checkpoints describe themselves in a file of its own: the same weights come out.
 */
TEST(test_older_quantised)
{
	static const struct {
		const char *fixture, *file;
	} older[] = {{"llama-gptq", "quantize_config.json"}, {"qwen2-awq", "quant_config.json"}};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	for (size_t i = 0; i < ARRAY_SIZE(older); i++) {
		shell("rm -rf %s/* && cp -r %s %s/model && chmod -R u+w %s/model", dir,
		      fixture(older[i].fixture), dir, dir);
		assert_int_equal(compile(in_dir("model"), in_dir("a"), &o, false), 0);
		move_quantisation(in_dir("model"), older[i].file);
		if (compile(in_dir("model"), in_dir("b"), &o, false))
			fail_msg("%s", error.text);
		shell("cmp %s/a/chip0/param.bin %s/b/chip0/param.bin", dir, dir);
	}
	shell("echo '{\"bits\": 3, \"group_size\": 128}' >%s/model/quant_config.json", dir);
	assert_true(compile(in_dir("model"), in_dir("c"), &o, false) < 0);
	assert_non_null(strstr(error.text, "quant_config.json"));
	assert_non_null(strstr(error.text, "bits"));
}

/* What comes in a form that is not known is named, rather than its first symptom. */
TEST(test_unknown_forms)
{
	static const struct {
		const char *change, *words; /* NULL: it is known */
	} cases[] = {
		{"echo '{\"producer\": {}, \"quantization\": {\"quant_algo\": \"NVFP4\"}}' "
		 ">hf_quant_config.json",
		 "hf_quant_config.json: quant_algo: \"NVFP4\" is not supported"},
		{"echo '{\"quantization\": {\"quant_algo\": \"FP8\"}}' >hf_quant_config.json",
		 NULL},
		{"echo '{\"quantization\": {\"quant_algo\": null}}' >hf_quant_config.json", NULL},
		{"mv tokenizer.json tekken.json", "tekken.json, which is not supported"},
		{"mv tokenizer.json vocab.json", "vocab.json, which is not supported"},
		{"mv model.safetensors pytorch_model.bin",
		 "pytorch_model.bin, which is not supported"},
		{"mv model.safetensors adapter_model.safetensors",
		 "no model.safetensors, but adapter_model.safetensors"},
		{"rm model.safetensors", "model.safetensors: No such file"},
		{"cp pointer model.safetensors", "model.safetensors is a Git LFS pointer"},
		{"cp pointer tokenizer.json", "tokenizer.json is a Git LFS pointer"},
		{"cp pointer config.json", "config.json is a Git LFS pointer"},
		{"mv config.json model.safetensors .. && cp pointer model.gguf",
		 "model.gguf is a Git LFS pointer"},
	};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int r;

		copy_fixture("llama2");
		shell("printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize "
		      "9\\n' "
		      ">%s/model/pointer",
		      dir);
		shell("cd %s/model && %s", dir, cases[i].change);
		r = compile(in_dir("model"), in_dir("case"), &o, true);
		if (!cases[i].words && r)
			fail_msg("%s: %s", cases[i].change, error.text);
		if (cases[i].words && (r >= 0 || !strstr(error.text, cases[i].words)))
			fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
	}
}

/* How hidden states become a vector is read or refused, never guessed. */
TEST(test_pooling)
{
#define MODULE(name) "{\"type\":\"sentence_transformers.models." name "\"}"
	static const struct {
		const char *modules, *pooling, *words; /* or the pooling */
		int error;
	} cases[] = {
		{"[" MODULE("Transformer") "]", NULL, "last", 0},
		{"[" MODULE("Pooling") "]", "{\"pooling_mode_cls_token\":true}", "cls", 0},
		{"[" MODULE("Pooling") "]", "{\"pooling_mode\":\"mean\"}", "mean", 0},
		{"[" MODULE("Pooling") "]", "{\"pooling_mode_max_tokens\":true}",
		 "pooling_mode_max_tokens", -ENOTSUP},
		{"[" MODULE("Pooling") "]",
		 "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":true}",
		 "pooling_mode_lasttoken: together with another mode", -ENOTSUP},
		{"[" MODULE("Pooling") "," MODULE("Dense") "]", NULL,
		 "\"sentence_transformers.models.Dense\" is not supported", -ENOTSUP},
		{"[{", NULL, "modules.json: JSON", -EINVAL},
		{"[]", "[1]", "1_Pooling/config.json: not an object", -EINVAL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct model m;
		int r;

		shell("rm -rf %s/* && cp -r %s %s/model && chmod -R u+w %s/model", dir,
		      fixture("qwen3"), dir, dir);
		shell("mkdir %s/model/1_Pooling && echo '%s' >%s/model/modules.json", dir,
		      cases[i].modules, dir);
		if (cases[i].pooling)
			shell("echo '%s' >%s/model/1_Pooling/config.json", cases[i].pooling, dir);
		memset(&error, 0, sizeof(error));
		r = model_open(in_dir("model"), &m, &error);
		assert_int_equal(r, cases[i].error);
		if (r && !strstr(error.text, cases[i].words))
			fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
		if (!r) {
			assert_true(m.embedding);
			assert_string_equal(m.pooling, cases[i].words);
			model_close(&m);
		}
	}
}

static void put(FILE *f, const void *data, size_t bytes)
{
	assert_int_equal(fwrite(data, 1, bytes, f), bytes);
}

/* Adds @n tensors to model/model.safetensors, each with @size bytes of @content. */
static void add_data(const char *const *names, unsigned n, const char *dtype, const char *shape,
		     const void *content, size_t size)
{
	uint64_t header, data;
	char *text, more[512], *end;
	size_t bytes;
	FILE *f;

	assert_int_equal(tool_read_file(AT_FDCWD, in_dir("model/model.safetensors"), 1u << 26,
					&text, &bytes, &error),
			 0);
	memcpy(&header, text, 8);
	data = bytes - 8 - header;
	end = memrchr(text + 8, '}', header);
	assert_non_null(end);
	f = fopen(in_dir("model/model.safetensors"), "w");
	assert_non_null(f);
	bytes = (size_t)(end - text - 8) + 1;
	for (unsigned pass = 0; pass < 2; pass++) {
		if (pass) {
			put(f, &bytes, 8);
			put(f, text + 8, (size_t)(end - text - 8));
		}
		for (unsigned i = 0; i < n; i++) {
			snprintf(more, sizeof(more),
				 ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
				 "\"data_offsets\":[%zu,%zu]}",
				 names[i], dtype, shape, (size_t)data + size * i,
				 (size_t)data + size * (i + 1));
			if (pass)
				fputs(more, f);
			else
				bytes += strlen(more);
		}
	}
	fputc('}', f);
	put(f, text + 8 + header, data);
	for (unsigned i = 0; i < n; i++)
		put(f, content, size);
	fclose(f);
	free(text);
}

/* Each is F32 [4], filled with @value. */
static void add_tensors(const char *const *names, unsigned n, float value)
{
	const float content[4] = {value, value, value, value};

	add_data(names, n, "F32", "[4]", content, sizeof(content));
}

/* What a compile of model/ says about tensors that it does not use; "" if nothing. */
static const char *unused(const struct compile_options *options)
{
	static char note[2048];
	struct compile_options o = *options;
	struct compiled_chip chip;
	struct model m;
	int r;

	memset(&error, 0, sizeof(error));
	if (model_open(in_dir("model"), &m, &error) || model_resolve_options(&m, &o, &error) ||
	    graph_build(&m.config, &m.source, &o, 0, &chip, &error))
		fail_msg("%s", error.text);
	r = unused_check(&m, &o, note, sizeof(note), &error);
	compiled_chip_free(&chip);
	model_close(&m);
	assert_true(!r || r == -ENOTSUP);
	return r ? error.text : note;
}

static void expect(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
}

/* A tensor that no program uses is named; unless its kind is known to change nothing it is refused. */
TEST(test_unused)
{
	static const struct {
		const char *fixture, *tensors[2];
		float value;
		bool harmless;
	} cases[] = {
		{"llama2", {"model.layers.1.self_attn.q_proj.bias"}, 1, false},
		{"llama2", {"model.layers.0.self_attn.q_norm.weight"}, 1, false},
		{"llama2", {"model.layers.0.self_attn.sinks"}, 1, false},
		{"llama2", {"model.layers.2.input_layernorm.weight"}, 1, false},
		{"llama2", {"model.layers.0.post_feedforward_layernorm.weight"}, 1, false},
		{"llama2", {"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"}, 1, false},
		{"llama2", {"lm_head.bias"}, 1, false},
		{"llama2", {"of_next_year"}, 1, false},
		{"llama2", {"model.layers.0.self_attn.q_proj.bias"}, 0, false},
		{"llama-gptq", {"model.layers.0.self_attn.q_proj.bias"}, 1, false},
		{"llama-gptq", {"model.layers.0.self_attn.q_proj.bias"}, 0, true},
		{"llama2", {"model.layers.0.self_attn.rotary_emb.inv_freq"}, 1, true},
		{"qwen3-fp8",
		 {"model.layers.0.self_attn.q_proj.input_scale",
		  "model.layers.0.self_attn.k_scale"},
		 1,
		 true},
		{"qwen3next", {"mtp.norm.weight"}, 1, true},
	};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned n = cases[i].tensors[1] ? 2 : 1;
		const char *said;

		copy_fixture(cases[i].fixture);
		o.ignore_unused = false;
		assert_string_equal(unused(&o), "");
		add_tensors(cases[i].tensors, n, cases[i].value);
		said = unused(&o);
		expect(said, cases[i].tensors[0]);
		expect(said, cases[i].tensors[n - 1]);
		assert_int_equal(!strstr(said, "may change results"), cases[i].harmless);
		o.ignore_unused = true;
		expect(unused(&o), cases[i].tensors[0]);
	}
	o.ignore_unused = false;
	copy_fixture("llama2");
	add_tensors(cases[0].tensors, 1, 1);
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, true), -ENOTSUP);
	o.ignore_unused = true;
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, true), 0);
}

/* Each of the two programs answers for its own layers, and kinds with many tensors are counted. */
TEST(test_unused_layers)
{
	static const char *const two[] = {"model.layers.0.self_attn.q_proj.lora_A.weight",
					  "model.layers.1.self_attn.q_proj.lora_A.weight"};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	copy_fixture("glm4moe-mtp");
	assert_string_equal(unused(&o), "model.layers.3.* (46)");
	o.mtp = o.hidden = true;
	assert_string_equal(unused(&o), "");
	add_tensors((const char *const[]){"model.layers.3.self_attn.sinks"}, 1, 1);
	expect(unused(&o), "model.layers.3.self_attn.sinks");
	copy_fixture("llama2");
	o.mtp = o.hidden = false;
	add_tensors(two, 2, 1);
	expect(unused(&o), "model.layers.0.self_attn.q_proj.lora_A.weight and 1 like it");
	copy_fixture("qwen3");
	o.embeds = true;
	assert_int_equal(compile(in_dir("model"), in_dir("case"), &o, true), 0);
}

/* The head that a checkpoint stores is used; config.json decides only where there is none. */
TEST(test_head)
{
	static const char *const head[] = {"lm_head.weight"};
	const struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	const struct safetensors_tensor *table;
	struct safetensors *st;

	assert_int_equal(compile(fixture("llama2"), in_dir("own"), &o, false), 0);
	for (unsigned nested = 0; nested < 2; nested++) {
		copy_fixture("llama2");
		if (nested)
			shell("cd %s/model && c=$(sed "
			      "'s/\"llama\"/\"mistral\",\"sliding_window\":null/' "
			      "config.json) && echo \"{'model_type': 'mistral3', "
			      "'tie_word_embeddings': true, 'text_config': \" | tr \"'\" '\"' "
			      ">config.json && echo \"$c}\" >>config.json",
			      dir);
		else
			shell("sed -i '/tie_word_embeddings/s/false/true/' %s/model/config.json",
			      dir);
		if (compile(in_dir("model"), in_dir("case"), &o, true))
			fail_msg("%s", error.text);
		shell("cmp %s/own/chip0/param.bin %s/case/chip0/param.bin", dir, dir);
	}

	/* One that equals the embedding takes no memory of its own. */
	assert_int_equal(compile(fixture("qwen3"), in_dir("own"), &o, true), 0);
	assert_int_equal(safetensors_open_dir(fixture("qwen3"), &st, &error), 0);
	table = safetensors_find(st, "model.embed_tokens.weight");
	assert_non_null(table);
	copy_fixture("qwen3");
	add_data(head, 1, "BF16", safetensors_shape(table->ndim, table->dim, (char[64]){0}, 64),
		 table->data, table->bytes);
	safetensors_close(st);
	if (compile(in_dir("model"), in_dir("case"), &o, true))
		fail_msg("%s", error.text);
	shell("cmp %s/own/chip0/param.bin %s/case/chip0/param.bin", dir, dir);
}

/* embed.bin has the rows as the program wants them: bf16, or float32 where a family scales them. */
TEST(test_embeddings)
{
	static const struct {
		const char *model;
		uint32_t rows, hidden;
		float scale; /* 0: rows as they are */
	} cases[] = {{"qwen3", 512, 96, 0}, {"gemma3", 512, 64, 8}};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	unsigned i;

	o.embeds = true;
	for (i = 0; i < 2; i++) {
		const struct safetensors_tensor *t;
		uint32_t count = cases[i].rows * cases[i].hidden, k;
		struct safetensors *st;
		size_t bytes;
		char *table;

		if (compile(fixture(cases[i].model), in_dir("case"), &o, true))
			fail_msg("%s", error.text);
		assert_int_equal(tool_read_file(AT_FDCWD, in_dir("case/embed.bin"), 1u << 20,
						&table, &bytes, &error),
				 0);
		assert_int_equal(safetensors_open_dir(fixture(cases[i].model), &st, &error), 0);
		t = safetensors_find(st, "model.embed_tokens.weight");
		assert_non_null(t);
		assert_int_equal(t->bytes, count * 2);
		assert_int_equal(bytes, count * (cases[i].scale > 0 ? 4 : 2));
		if (!(cases[i].scale > 0))
			assert_memory_equal(table, t->data, bytes);
		for (k = 0; cases[i].scale > 0 && k < count; k++)
			assert_true(((const float *)table)[k] ==
				    cases[i].scale * bf16_to_float(((const uint16_t *)t->data)[k]));
		safetensors_close(st);
		free(table);
	}
}

int main(int argc, char **argv)
{
	fixtures = getenv("TXDA_FIXTURES");
	if (!fixtures) {
		puts("TXDA_FIXTURES does not name the fixtures");
		return 77;
	}
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_group(argv[0], setup, teardown);
}
