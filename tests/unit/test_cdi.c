// SPDX-License-Identifier: MIT
/* txda-cdi: what the specification says, and that the last state of the machine wins. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cjson/cJSON.h>

#include "test_dir.h"
#include "files.h"
#include "spec.h"
#include "store.h"

/* ---- the rules of the specification, version 0.5.0 ------------------------------------------- */

/* An object that has the members @names and no others: readers refuse what they do not know. */
static void assert_members(const cJSON *object, const char *const names[])
{
	assert_true(cJSON_IsObject(object));
	for (const cJSON *member = object->child; member; member = member->next) {
		unsigned i = 0;

		while (names[i] && strcmp(names[i], member->string))
			i++;
		assert_non_null(names[i]);
	}
}

static const char *text_of(const cJSON *object, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	assert_non_null(text);
	return text;
}

static void assert_edits(const cJSON *edits)
{
	static const char *const members[] = {"env", "deviceNodes", "mounts", "hooks", NULL};
	static const char *const of_node[] = {"path",	  "hostPath",	 "type", "major", "minor",
					      "fileMode", "permissions", "uid",	 "gid",	  NULL};
	static const char *const of_mount[] = {"hostPath", "containerPath", "options", "type",
					       NULL};
	const cJSON *item;

	assert_members(edits, members);
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(edits, "deviceNodes")) {
		assert_members(item, of_node);
		assert_int_equal(text_of(item, "path")[0], '/');
		assert_string_equal(text_of(item, "type"), "c");
		assert_string_equal(text_of(item, "permissions"), "rw");
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(edits, "mounts")) {
		assert_members(item, of_mount);
		assert_int_equal(text_of(item, "hostPath")[0], '/');
		assert_int_equal(text_of(item, "containerPath")[0], '/');
	}
}

/* The specification as an object to be deleted, which keeps to the rules. */
static cJSON *parse(const char *text)
{
	static const char *const members[] = {"cdiVersion", "kind", "devices", "containerEdits",
					      NULL};
	static const char *const of_device[] = {"name", "containerEdits", NULL};
	cJSON *spec = cJSON_Parse(text);
	const cJSON *devices, *device, *other, *edits;

	assert_members(spec, members);
	assert_string_equal(text_of(spec, "cdiVersion"), "0.5.0");
	assert_string_equal(text_of(spec, "kind"), "txda.com/chip");
	devices = cJSON_GetObjectItemCaseSensitive(spec, "devices");
	assert_true(cJSON_GetArraySize(devices) > 0);
	cJSON_ArrayForEach(device, devices) {
		const char *name = text_of(device, "name");

		assert_members(device, of_device);
		assert_true(strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789_-.:") == strlen(name));
		assert_null(strchr("_-.:", name[0]));
		assert_null(strchr("_-.:", name[strlen(name) - 1]));
		for (other = device->next; other; other = other->next)
			assert_string_not_equal(name, text_of(other, "name"));
		edits = cJSON_GetObjectItemCaseSensitive(device, "containerEdits");
		assert_edits(edits);
		assert_true(cJSON_GetArraySize(
				    cJSON_GetObjectItemCaseSensitive(edits, "deviceNodes")) > 0);
	}
	edits = cJSON_GetObjectItemCaseSensitive(spec, "containerEdits");
	if (edits)
		assert_edits(edits);
	return spec;
}

/* The nodes of device @name, with blanks between, to be freed; NULL: there is no such device. */
static char *nodes_of(const cJSON *spec, const char *name)
{
	const cJSON *device, *node;
	char *list = NULL;

	cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(spec, "devices")) {
		const cJSON *edits = cJSON_GetObjectItemCaseSensitive(device, "containerEdits");
		size_t len;
		FILE *out;

		if (strcmp(text_of(device, "name"), name))
			continue;
		assert_null(list);
		out = open_memstream(&list, &len);
		assert_non_null(out);
		cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(edits, "deviceNodes"))
			fprintf(out, "%s%s", node->prev->next ? " " : "", text_of(node, "path"));
		fclose(out);
	}
	return list;
}

static void assert_nodes(const cJSON *spec, const char *name, const char *nodes)
{
	char *list = nodes_of(spec, name);

	if (nodes) {
		assert_non_null(list);
		assert_string_equal(list, nodes);
	} else {
		assert_null(list);
	}
	free(list);
}

/* ---- what it says ---------------------------------------------------------------------------- */

TEST(test_chips)
{
	const struct cdi_chip chips[] = {
		{0, "/dev/accel/accel3", "0000:01:00.0", "TX8-0042"},
		{1, "/dev/accel/accel0", "0000:02:00.0", "TX8-0043"},
	};
	char *text = cdi_spec(chips, 2, "/usr/lib/libtxda.so.0");
	const cJSON *mount;
	cJSON *spec;

	assert_non_null(text);
	spec = parse(text);
	assert_nodes(spec, "0", "/dev/accel/accel3");
	assert_nodes(spec, "0000:01:00.0", "/dev/accel/accel3");
	assert_nodes(spec, "TX8-0042", "/dev/accel/accel3");
	assert_nodes(spec, "1", "/dev/accel/accel0");
	assert_nodes(spec, "TX8-0043", "/dev/accel/accel0");
	assert_nodes(spec, "all", "/dev/accel/accel3 /dev/accel/accel0");
	assert_nodes(spec, "2", NULL);
	mount = cJSON_GetArrayItem(
		cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(spec, "containerEdits"), "mounts"),
		0);
	assert_string_equal(text_of(mount, "hostPath"), "/usr/lib/libtxda.so.0");
	assert_string_equal(text_of(mount, "containerPath"), "/usr/lib/libtxda.so.0");
	cJSON_Delete(spec);
	free(text);
	text = cdi_spec(chips, 1, NULL);
	spec = parse(text);
	assert_null(cJSON_GetObjectItemCaseSensitive(spec, "containerEdits"));
	cJSON_Delete(spec);
	free(text);
}

/* A serial number is what a card says: it may be anything, and somebody else's name. */
TEST(test_hostile)
{
	const struct cdi_chip chips[] = {
		{0, "/dev/accel/accel0", "0000:01:00.0", "1"},
		{1, "/dev/accel/accel1", "0000:02:00.0", "all"},
		{2, "/dev/accel/accel2", "0000:03:00.0", "0000:01:00.0"},
		{3, "/dev/accel/accel3", "0000:04:00.0", "same"},
		{4, "/dev/accel/accel4", "0000:05:00.0", "same"},
		{5, "/dev/accel/accel5", "0000:06:00.0", "0000:06:00.0"},
		{6, "/dev/accel/accel6", "", "-a"},
		{7, "/dev/accel/accel7", "", "a."},
		{8, "/dev/accel/accel8", "", "a/b"},
		{9, "/dev/accel/accel9", "", "a\"],b"},
		{10, "/dev/accel/accel10", "", "a=b"},
		{11, "/dev/accel/accel11", "", "caf\xc3\xa9"},
		{12, "/dev/accel/accel12", "", ""},
	};
	unsigned n = ARRAY_SIZE(chips);
	char *text = cdi_spec(chips, n, NULL), long_name[CDI_MAX_NAME + 2];
	cJSON *spec = parse(text);

	assert_nodes(spec, "1", "/dev/accel/accel1");
	assert_nodes(spec, "same", NULL);
	/* Neither's, rather than now the one's and now the other's. */
	assert_nodes(spec, "0000:01:00.0", NULL);
	assert_nodes(spec, "0000:06:00.0", "/dev/accel/accel5");
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(spec, "devices")),
			 n + 5 + 1);
	cJSON_Delete(spec);
	free(text);
	memset(long_name, 'a', sizeof(long_name));
	long_name[CDI_MAX_NAME + 1] = '\0';
	assert_false(cdi_name_is_valid(long_name));
	assert_true(cdi_name_is_valid(long_name + 1));
	assert_false(cdi_name_is_valid(""));
}

/* ---- keeping a file -------------------------------------------------------------------------- */

static char path[128];

static int make_directory(void **state)
{
	int r = test_dir_make(state);

	/* Its directory is made, too. */
	strcpy(path, at("cdi/chip.json"));
	return r;
}

static int remove_directory(void **state)
{
	unlink(path);
	rmdir(at("cdi"));
	/* Fails if something was left behind. */
	return rmdir(test_dir);
}

static void assert_file(const char *wanted)
{
	char *text = NULL;
	size_t bytes;

	if (!wanted) {
		assert_int_equal(access(path, F_OK), -1);
		return;
	}
	assert_int_equal(tool_read_file(AT_FDCWD, path, 1000, &text, &bytes, NULL), 0);
	assert_string_equal(text, wanted);
	free(text);
}

/* The machine changes while the file is written: each look sees the next of these states. */
struct machine {
	const char *const *states; /* the last one stays */
	unsigned looks;
};

static int look(void *data, char **ret_text, struct tool_error *error)
{
	struct machine *machine = data;
	const char *now = machine->states[machine->looks];

	if (now && !strcmp(now, "broken"))
		return tool_fail(error, -EIO, "broken");
	*ret_text = now ? strdup(now) : NULL;
	machine->looks++;
	return 0;
}

TEST_WITH(test_changes, make_directory, remove_directory)
{
	const char *const grows[] = {"one", "two", "three", "three"};
	const char *const ends[] = {"three", NULL, NULL};
	const char *const none[] = {NULL, NULL};
	const char *const breaks[] = {"one", "broken"};
	struct tool_error error;
	struct machine machine = {grows, 0};
	struct stat st;

	assert_int_equal(cdi_store(path, look, &machine, &error), 1);
	assert_int_equal(machine.looks, 4);
	assert_file("three");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	machine = (struct machine){ends, 0};
	assert_int_equal(cdi_store(path, look, &machine, &error), 0);
	assert_file(NULL);
	machine = (struct machine){none, 0};
	assert_int_equal(cdi_store(path, look, &machine, &error), 0);
	machine = (struct machine){breaks, 0};
	assert_int_equal(cdi_store(path, look, &machine, &error), -EIO);
	assert_string_equal(error.text, "broken");
}

TEST_WITH(test_no_place, make_directory, remove_directory)
{
	const char *const one[] = {"one", "one"};
	struct machine machine = {one, 0};
	struct tool_error error;
	char name[5000];

	strcpy(name, at("no/such/chip.json"));
	assert_int_equal(cdi_store(name, look, &machine, &error), -ENOENT);
	assert_says(error.text, "/no/such");
	memset(name, 'a', sizeof(name));
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	machine.looks = 0;
	assert_true(cdi_store(name, look, &machine, &error) < 0);
}

static int look_at_number(void *data, char **ret_text, struct tool_error *error)
{
	const _Atomic int *number = data;
	int n = *number;

	*ret_text = NULL;
	return n && asprintf(ret_text, "%d", n) < 0 ? -ENOMEM : 0;
}

/* As udev does it: a process for each of many changes, all at the same time. */
TEST_WITH(test_flock, make_directory, remove_directory)
{
	_Atomic int *number = mmap(NULL, sizeof(*number), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char wanted[16];
	int status;

	assert_ptr_not_equal(number, MAP_FAILED);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 8; i++) {
			struct tool_error error;

			/* The chips of a card that come, or go down to the last. */
			*number = round % 2 ? 7 - i : i + 1;
			if (fork() == 0)
				_exit(cdi_store(path, look_at_number, (void *)number, &error) < 0);
		}
		while (wait(&status) > 0)
			assert_int_equal(status, 0);
		snprintf(wanted, sizeof(wanted), "%d", *number);
		assert_file(*number ? wanted : NULL);
	}
	munmap(number, sizeof(*number));
}

TEST_MAIN
