// SPDX-License-Identifier: MIT
/* txda-cmodel: chips of the device model as PCI devices for QEMU, and the control client. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl.h"
#include "log.h"
#include "number.h"
#include "server.h"
#include "sigbus.h"
#include "tool_line.h"
#include "tool_run.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1 };

#define DEFAULT_MEM (1ull << 30)
#define MAX_CORES   1024 /* of the device model */

static const char usage[] =
	"Usage: txda-cmodel --socket-dir DIR [OPTIONS]     serve chips to QEMU's vfio-user-pci\n"
	"       txda-cmodel --ctl DIR COMMAND...           send a command to a server\n"
	"\n"
	"      --chips N          chips, 1 to 64 (1)\n"
	"      --mem SIZE         DRAM of each chip, such as 512M or 4G (1G)\n"
	"      --bar SIZE         size of the DRAM aperture, a power of two (as the DRAM, at most "
	"4G)\n"
	"      --socket-dir DIR   directory for chip0.sock, chip1.sock, ... and control.sock\n"
	"      --control PATH     path of the control socket\n"
	"      --irq msix|msi     interrupt type (msix)\n"
	"      --cores N          compute threads (one per CPU, one or two fewer if there are\n"
	"                         many; with the path amx at most one per physical core)\n"
	"      --identity TEXT    seed of the serial numbers (the directory)\n"
	"      --ready-fd FD      write a line to FD when clients can connect\n"
	"      --log-level LEVEL  error, warning, info or debug (warning)\n"
	"      --ctl DIR          directory or control socket of a server; \"help\" lists its "
	"commands\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 usage error.\n";

struct request {
	struct vu_server_options server;
	const char *ctl;
	int ready_fd; /* -1: none */
};

enum {
	OPT_CHIPS = 256,
	OPT_MEM,
	OPT_BAR,
	OPT_SOCKET_DIR,
	OPT_CONTROL,
	OPT_IRQ,
	OPT_CORES,
	OPT_IDENTITY,
	OPT_READY_FD,
	OPT_LOG_LEVEL,
	OPT_CTL
};

static const struct option options[] = {
	{"chips", required_argument, NULL, OPT_CHIPS},
	{"mem", required_argument, NULL, OPT_MEM},
	{"bar", required_argument, NULL, OPT_BAR},
	{"socket-dir", required_argument, NULL, OPT_SOCKET_DIR},
	{"control", required_argument, NULL, OPT_CONTROL},
	{"irq", required_argument, NULL, OPT_IRQ},
	{"cores", required_argument, NULL, OPT_CORES},
	{"identity", required_argument, NULL, OPT_IDENTITY},
	{"ready-fd", required_argument, NULL, OPT_READY_FD},
	{"log-level", required_argument, NULL, OPT_LOG_LEVEL},
	{"ctl", required_argument, NULL, OPT_CTL},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-cmodel", usage, options, "");

/* Of the last option. */
static int refuse(const char *wanted)
{
	return tool_refuse(&line, "--%s %s: %s", line.name, line.value, wanted);
}

/* -1 to go on, else the exit status. */
static int read_sizes(int c, struct vu_machine_options *m)
{
	uint64_t value;

	switch (c) {
	case OPT_CHIPS: return tool_number(&line, 1, CM_MAX_CHIPS, &m->chips) ? -1 : TOOL_USAGE;
	case OPT_MEM:
		if (!number_parse_size(line.value, 1ull << 40, &value) || value < VU_MEM_MIN ||
		    value % (2ull << 20))
			return refuse("must be a multiple of 2M from 64M to 1024G");
		m->mem_bytes = value;
		return -1;
	case OPT_BAR:
		if (!number_parse_size(line.value, 1ull << 40, &value) || value < VU_MEM_MIN ||
		    (value & (value - 1)))
			return refuse("must be a power of two from 64M to 1024G");
		m->bar_bytes = value;
		return -1;
	default: return tool_number(&line, 1, MAX_CORES, &m->cores) ? -1 : TOOL_USAGE;
	}
}

static int read_option(int c, struct request *r)
{
	static const char *const irqs[] = {"msix", "msi", NULL};
	enum vu_log_level level;
	unsigned number;
	int word;

	switch (c) {
	case OPT_CHIPS:
	case OPT_MEM:
	case OPT_BAR:
	case OPT_CORES: return read_sizes(c, &r->server.machine);
	case OPT_SOCKET_DIR: r->server.socket_dir = line.value; return -1;
	case OPT_CONTROL: r->server.control = line.value; return -1;
	case OPT_IRQ:
		word = tool_word(&line, irqs);
		r->server.machine.irq = word ? VU_IRQ_MODE_MSI : VU_IRQ_MODE_MSIX;
		return word < 0 ? TOOL_USAGE : -1;
	case OPT_IDENTITY: r->server.machine.identity = line.value; return -1;
	case OPT_READY_FD:
		if (!tool_number(&line, 1, 1 << 20, &number))
			return TOOL_USAGE;
		r->ready_fd = (int)number;
		return -1;
	case OPT_LOG_LEVEL:
		if (vu_log_level_named(line.value, &level))
			return refuse("must be error, warning, info or debug");
		vu_log_set_level(level);
		return -1;
	case OPT_CTL: r->ctl = line.value; return -1;
	default: return TOOL_USAGE;
	}
}

static struct vu_server *running;

static void on_signal(int sig)
{
	(void)sig;
	vu_server_stop(running);
}

/* A client that disconnects must not end the server; SIGTERM and SIGINT shut it down. */
static void set_signals(struct vu_server *s)
{
	struct sigaction action = {.sa_handler = on_signal};

	running = s;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void print_ready(const struct request *r)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "ready: %u chips\n", r->server.machine.chips);

	fputs(text, stdout);
	fflush(stdout);
	if (r->ready_fd >= 0) {
		if (write(r->ready_fd, text, (size_t)n) != n)
			fprintf(stderr, "txda-cmodel: --ready-fd %d: %s\n", r->ready_fd,
				strerror(errno));
		close(r->ready_fd);
	}
}

/* A client that stops a queue does not wait for the op that runs, however long that is. */
static int install_interrupt(int number)
{
	struct sigaction action = {.sa_handler = cm_interrupted,
				   .sa_flags = SA_RESTART | SA_NODEFER};

	return sigaction(number, &action, NULL) ? -errno : 0;
}

static int serve(struct request *r)
{
	struct vu_server *s;
	char *identity = NULL;
	int err;

	if (mkdir(r->server.socket_dir, 0700) && errno != EEXIST) {
		fprintf(stderr, "txda-cmodel: %s: %s\n", r->server.socket_dir, strerror(errno));
		return EXIT_FAILED;
	}
	if (!r->server.machine.identity)
		r->server.machine.identity = identity = realpath(r->server.socket_dir, NULL);
	r->server.machine.interrupt = SIGURG;
	err = vu_sigbus_install();
	if (!err)
		err = install_interrupt(r->server.machine.interrupt);
	if (!err)
		err = vu_server_new(&r->server, &s);
	free(identity);
	if (err) {
		fprintf(stderr, "txda-cmodel: cannot serve %u chips in %s: %s\n",
			r->server.machine.chips, r->server.socket_dir, strerror(-err));
		return EXIT_FAILED;
	}
	set_signals(s);
	print_ready(r);
	err = vu_server_run(s);
	if (err)
		fprintf(stderr, "txda-cmodel: %s\n", strerror(-err));
	vu_server_free(s);
	return err ? EXIT_FAILED : EXIT_OK;
}

static int run_tool(int argc, char **argv)
{
	struct request r = {
		.server.machine = {.chips = 1, .mem_bytes = DEFAULT_MEM},
		.ready_fd = -1,
	};
	int c, status;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		status = read_option(c, &r);
		if (status >= 0)
			return status;
	}
	if (c < 0)
		return line.status;
	if (r.ctl)
		return line.n_words ? ctl_send_command(r.ctl, line.words, line.n_words)
				    : tool_refuse(&line, "--ctl %s: a command is missing", r.ctl);
	if (line.n_words)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[0]);
	if (!r.server.socket_dir)
		return tool_refuse(&line, "--socket-dir is missing");
	return serve(&r);
}

int main(int argc, char **argv)
{
	return tool_run("txda-cmodel", run_tool, argc, argv, EXIT_FAILED);
}
