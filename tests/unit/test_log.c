// SPDX-License-Identifier: MIT
/* The daemon's log in a file. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "test_dir.h"
#include "log.h"

static char err[1024];

static const char *content(const char *name)
{
	static char text[4096];
	FILE *f = fopen(at(name), "r");

	assert_non_null(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	return text;
}

static void refused(const char *name, const char *words)
{
	*err = 0;
	assert_int_not_equal(log_to_file(at(name), err, sizeof(err)), 0);
	if (!strstr(err, words) || !strstr(err, name))
		fail_msg("'%s' does not say '%s'", err, words);
}

/* Each line has its time; a file that was renamed is left, and one that is there is not emptied. */
TEST(lines_go_into_the_file)
{
	struct stat st;
	int year, ms;
	char zone;

	umask(0);
	assert_int_equal(log_to_file(at("log"), err, sizeof(err)), 0);
	assert_int_equal(stat(at("log"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	log_warning("first\nsecond\033\302\2331m\302\240\377\200\303.\343\201");
	assert_int_equal(sscanf(content("log"), "%d-%*d-%*dT%*d:%*d:%*d.%d%c ", &year, &ms, &zone),
			 3);
	assert_int_equal(zone, 'Z');
	assert_says(content("log"), "Z txdad: warning: first?second???1m\302\240???.??\n");
	assert_int_equal(rename(at("log"), at("old")), 0);
	log_info("third");
	assert_says(content("old"), "third");
	umask(077);
	assert_int_equal(log_to_file(at("log"), err, sizeof(err)), 0);
	log_info("fourth");
	assert_int_equal(stat(at("log"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_null(strstr(content("old"), "fourth"));
	assert_null(strstr(content("log"), "third"));
	assert_int_equal(log_to_file(at("log"), err, sizeof(err)), 0);
	log_info("fifth");
	assert_says(content("log"), "fourth");
	assert_says(content("log"), "fifth");
}

/* What somebody else may have laid there; the log stays where it was. */
TEST(hostile_files_are_refused)
{
	char path[300];

	assert_int_equal(log_to_file(at("log"), err, sizeof(err)), 0);
	put("target", "", 0600);
	assert_int_equal(symlink(at("target"), at("link")), 0);
	refused("link", "it is a symbolic link");
	assert_int_equal(symlink(at("nowhere"), at("dangling")), 0);
	refused("dangling", "it is a symbolic link");
	assert_int_not_equal(access(at("nowhere"), F_OK), 0);
	assert_int_equal(link(at("target"), at("second")), 0);
	refused("second", "it has more than one hard link");
	put("public", "", 0666);
	refused("public", "everybody may write to it");
	assert_int_equal(mkfifo(at("pipe"), 0600), 0);
	refused("pipe", "");
	assert_int_equal(mkdir(at("directory"), 0700), 0);
	refused("directory", "Is a directory");
	refused("directory/", "");
	refused("missing/log", "No such file or directory");
	refused("target/log", "Not a directory");
	assert_int_equal(mkdir(at("open"), 0700), 0);
	assert_int_equal(chmod(at("open"), 0777), 0);
	refused("open/log", "everybody may rename files in its directory");
	assert_int_not_equal(access(at("open/log"), F_OK), 0);
	assert_int_equal(chmod(at("open"), 01777), 0);
	assert_int_equal(log_to_file(at("open/log"), err, sizeof(err)), 0);
	if (!geteuid()) {
		put("theirs", "", 0600);
		assert_int_equal(chown(at("theirs"), 12345, 12345), 0);
		refused("theirs", "it belongs to another user");
	}
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_not_equal(log_to_file(path, err, sizeof(err)), 0);
	log_info("still here");
	assert_says(content("open/log"), "still here");
}

static atomic_bool stop;

static void *write_lines(void *arg)
{
	while (!atomic_load(&stop))
		log_info("a line");
	return arg;
}

/* A thread that logs meanwhile writes to one of the files, and to nothing that was opened since. */
TEST(files_change_under_writers)
{
	pthread_t threads[2];
	struct stat st;
	int fd;

	put("bystander", "", 0600);
	assert_int_equal(log_to_file(at("0"), err, sizeof(err)), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_lines, NULL), 0);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(log_to_file(at(i % 2 ? "0" : "1"), err, sizeof(err)), 0);
		fd = open(at("bystander"), O_WRONLY);
		assert_true(fd >= 0);
		close(fd);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(stat(at("bystander"), &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(log_to_file("", err, sizeof(err)), 0);
	assert_int_equal(log_to_file(NULL, err, sizeof(err)), 0);
}

static int tear_down(void **state)
{
	log_to_file(NULL, err, sizeof(err));
	return test_dir_remove(state);
}

TEST_MAIN_ALL(test_dir_make, tear_down)
