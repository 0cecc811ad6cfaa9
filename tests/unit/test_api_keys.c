// SPDX-License-Identifier: MIT
/* API keys: their file, what may be in it, who may have access to it, and whom a key stands for. */
#include <errno.h>
#include <pwd.h>

#include "test_dir.h"
#include "api_keys.h"
#include "secure_file.h"

#define KEY_A "0123456789abcdef"
#define KEY_B "sk-another-key_of.~+/16=="

/* In the place of the library's: an account whose uid is one of the daemon's own. */
struct passwd *getpwnam(const char *name)
{
	static char far[] = "far", none[] = "";
	static struct passwd account = {.pw_name = far,
					.pw_passwd = none,
					.pw_gecos = none,
					.pw_dir = none,
					.pw_shell = none};
	static char room[4096];
	static struct passwd other;
	struct passwd *found = NULL;

	account.pw_uid = (uid_t)-2;
	if (!strcmp(name, far))
		return &account;
	return getpwnam_r(name, &other, room, sizeof(room), &found) ? NULL : found;
}

static char file[96], err[512];

static int setup(void **state)
{
	int r = test_dir_make(state);

	strcpy(file, at("keys"));
	unsetenv("CREDENTIALS_DIRECTORY");
	return r;
}

static struct api_keys *parse(const char *text)
{
	struct api_keys *k = NULL;

	*err = 0;
	if (api_keys_parse(text, strlen(text), "keys", NULL, &k, err, sizeof(err)))
		assert_null(k);
	return k;
}

/* The text is refused, for a reason that holds @words and nothing of what might be a key. */
static void refuse(const char *text, const char *words)
{
	assert_null(parse(text));
	assert_says(err, words);
	assert_null(strstr(err, KEY_A));
	assert_null(strstr(err, "secret"));
}

static const struct identity *find(const struct api_keys *k, const char *key)
{
	return api_keys_find(k, key, strlen(key));
}

TEST(test_users)
{
	struct api_keys *k;
	const struct identity *user;
	const struct passwd *root = getpwuid(0);
	gid_t gid = root ? root->pw_gid : (gid_t)-1;

	k = parse("# who may ask\r\n\n\t teller@home:" KEY_A " \r\n"
		  "0:" KEY_B ":admin\nteller@home:" KEY_A "2\n12345:" KEY_A "3");
	assert_non_null(k);
	assert_int_equal(api_keys_count(k), 4);
	/* A name that is no account. */
	user = find(k, KEY_A);
	assert_string_equal(user->name, "teller@home");
	assert_true(user->uid > IDENTITY_OWN_UIDS);
	assert_false(user->admin);
	assert_int_equal(user->n_groups, 0);
	/* It is one user, whichever of its keys is used. */
	assert_int_equal(find(k, KEY_A "2")->uid, user->uid);
	/* An account, by its number; the right is the key's. */
	user = find(k, KEY_B);
	assert_int_equal(user->uid, 0);
	assert_true(user->admin);
	assert_int_equal(user->gid, gid);
	assert_int_equal(find(k, KEY_A "3")->uid, 12345);
	assert_true(api_keys_has_user(k, 12345));
	assert_false(api_keys_has_user(k, IDENTITY_OWN_UIDS));
	api_keys_free(k);
	if (!root)
		return;
	k = parse("root:" KEY_A);
	assert_int_equal(find(k, KEY_A)->uid, 0);
	assert_false(find(k, KEY_A)->admin);
	assert_true(find(k, KEY_A)->n_groups > 0);
	api_keys_free(k);
}

/* An account may have any uid, and nobody is one of the daemon's own users by having the number. */
TEST(test_far_account)
{
	struct api_keys *k = parse("teller:" KEY_B "\nfar:" KEY_A "\n2147483649:" KEY_A "2");

	assert_non_null(k);
	assert_int_equal(find(k, KEY_A)->uid, 4294967294);
	assert_int_equal(find(k, KEY_A "2")->uid, 2147483649);
	assert_true(find(k, KEY_B)->uid > UINT32_MAX);
	api_keys_free(k);
}

/* Each key is found wherever it stands, and nothing that only resembles one is. */
TEST(test_comparison)
{
	char text[API_KEYS_MAX * 32], key[32];
	struct api_keys *k;
	size_t at = 0;

	for (unsigned i = 0; i < API_KEYS_MAX; i++)
		at += (size_t)sprintf(text + at, "u%u:key-number-%08u\n", i, i);
	k = parse(text);
	assert_non_null(k);
	for (unsigned i = 0; i < API_KEYS_MAX; i++) {
		char name[16];

		sprintf(key, "key-number-%08u", i);
		sprintf(name, "u%u", i);
		assert_non_null(find(k, key));
		assert_string_equal(find(k, key)->name, name);
		for (unsigned n = 0; i % 32 == 0 && n < strlen(key); n++)
			assert_null(api_keys_find(k, key, n));
		key[i % 11] ^= 1;
		assert_null(find(k, key));
	}
	assert_null(find(k, ""));
	assert_null(find(k, "key-number-00000000 "));
	assert_null(api_keys_find(k, "key-number-00000000\0", 20));
	api_keys_free(k);
	strcpy(text + at, "more:key-number-of-the-surplus");
	refuse(text, "line 1025: more than 1024 keys");
}

TEST(test_hostile_text)
{
	static const char with_nul[] = "a:0123456789\0abcdef";
	char text[1024];
	struct api_keys *k = NULL;

	refuse("", "keys has no keys");
	refuse("# nothing\n\n", "keys has no keys");
	refuse("secret-key-without-a-user", "keys, line 1: a ':' between user and key is missing");
	refuse("a:" KEY_A "\n\nsecret", "keys, line 3: a ':' between user and key is missing");
	refuse(":" KEY_A, "name has 0 characters; it must have 1 to 63");
	refuse("a b:" KEY_A, "may only have letters, digits and ._@-");
	refuse("-a:" KEY_A, "may not begin with -");
	refuse("a\x1b[1m:" KEY_A, "letters, digits");
	refuse("\xc3\xa4:" KEY_A, "letters, digits");
	refuse("a:short-secret", "the key has 12 characters; it must have 16 to 256");
	refuse("a:", "the key has 0 characters");
	refuse("a: " KEY_A, "a key may only have letters, digits and -._~+/=");
	refuse("a:" KEY_A "\"\n", "a key may only have letters");
	/* Turned round. */
	refuse("secret-of-someone-0:alice", "the key has 5 characters");
	refuse("a:" KEY_A ":", "only ':admin' may follow");
	refuse("a:" KEY_A ":admin:", "only ':admin' may follow");
	refuse("a:" KEY_A ":Admin", "only ':admin' may follow");
	refuse("a:" KEY_A "\nb:" KEY_B "\nc:" KEY_A, "line 3: the same key is in line 1");
	refuse("4294967295:" KEY_A, "a user's number must be below 4294967295");
	refuse("99999999999999999999999:" KEY_A, "a user's number must be below 4294967295");
	snprintf(text, sizeof(text), "%0100d:" KEY_A, 1);
	refuse(text, "name has 100 characters");
	snprintf(text, sizeof(text), "a:%0256d", 1);
	k = parse(text);
	assert_non_null(k);
	api_keys_free(k);
	snprintf(text, sizeof(text), "a:%0257d", 1);
	refuse(text, "the key has 257 characters");
	k = NULL;
	assert_int_equal(
		api_keys_parse(with_nul, sizeof(with_nul) - 1, "keys", NULL, &k, err, sizeof(err)),
		-EINVAL);
	assert_null(k);
	/* Room for words that does not do is no harm. */
	assert_int_equal(api_keys_parse("x", 1, "keys", NULL, &k, err, 8), -EINVAL);
	assert_string_equal(err, "keys, l");
}

/* Users keep their uids when the file is read again, and those of others are never given anew. */
TEST(test_reload)
{
	struct api_keys *first = parse("anna-x:" KEY_A "\nberta-x:" KEY_B), *second = NULL,
			*third = NULL;
	const char *text = "berta-x:" KEY_B "9\ncarla-x:" KEY_A;
	user_id anna = find(first, KEY_A)->uid, berta = find(first, KEY_B)->uid, carla;

	assert_int_not_equal(anna, berta);
	assert_int_equal(
		api_keys_parse(text, strlen(text), "keys", first, &second, err, sizeof(err)), 0);
	assert_null(find(second, KEY_B));
	assert_int_equal(find(second, KEY_B "9")->uid, berta);
	carla = find(second, KEY_A)->uid;
	assert_true(carla != anna && carla != berta);
	/* Who comes back is somebody new. */
	text = "anna-x:" KEY_A;
	assert_int_equal(
		api_keys_parse(text, strlen(text), "keys", second, &third, err, sizeof(err)), 0);
	assert_true(find(third, KEY_A)->uid > carla);
	api_keys_free(first);
	api_keys_free(second);
	api_keys_free(third);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void refuse_file(const char *path, int error, const char *words)
{
	struct api_keys *k = NULL;

	assert_int_equal(api_keys_load(path, NULL, &k, err, sizeof(err)), error);
	assert_null(k);
	assert_says(err, words);
	assert_null(strstr(err, KEY_A));
}

static void accept_file(const char *path)
{
	struct api_keys *k = NULL;

	if (api_keys_load(path, NULL, &k, err, sizeof(err)))
		fail_msg("%s", err);
	assert_non_null(find(k, KEY_A));
	api_keys_free(k);
}

TEST_WITH(test_modes, setup, test_dir_remove)
{
	static const mode_t bad[] = {0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666, 0440, 04666};
	char words[64];

	put(file, "a:" KEY_A, 0600);
	accept_file(file);
	assert_int_equal(chmod(file, 0400), 0);
	accept_file(file);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(chmod(file, bad[i]), 0);
		snprintf(words, sizeof(words), "(mode %04o); it must be 0600 or less",
			 (unsigned)bad[i]);
		refuse_file(file, -EPERM, words);
	}
}

/* systemd lets the unit's user in by an ACL, whose mask looks like a right of the group. */
TEST_WITH(test_credential, setup, test_dir_remove)
{
	char sub[80], inner[96];

	strcpy(sub, at("sub"));
	strcpy(inner, at("sub/keys"));
	assert_int_equal(mkdir(sub, 0700), 0);
	put(file, "a:" KEY_A, 0440);
	put(inner, "a:" KEY_A, 0440);
	setenv("CREDENTIALS_DIRECTORY", test_dir, 1);
	accept_file(file);
	refuse_file(inner, -EPERM, "mode 0440");
	assert_int_equal(chmod(file, 0460), 0);
	refuse_file(file, -EPERM, "mode 0460");
	assert_int_equal(chmod(file, 0444), 0);
	refuse_file(file, -EPERM, "mode 0444");
	assert_int_equal(chmod(file, 0440), 0);
	setenv("CREDENTIALS_DIRECTORY", "", 1);
	refuse_file(file, -EPERM, "mode 0440");
	setenv("CREDENTIALS_DIRECTORY", "/tmp", 1);
	refuse_file(file, -EPERM, "mode 0440");
}

TEST_WITH(test_kinds, setup, test_dir_remove)
{
	static char long_path[5000];
	char link[96];

	strcpy(link, at("link"));
	put(file, "a:" KEY_A, 0600);
	assert_int_equal(symlink(file, link), 0);
	refuse_file(link, -ELOOP, "is a symbolic link");
	unlink(link);
	/* On the way, too. */
	assert_int_equal(symlink(test_dir, link), 0);
	strcat(link, "/keys");
	refuse_file(link, -ELOOP, "link is a symbolic link");
	link[strlen(link) - 5] = 0;
	unlink(link);
	refuse_file(test_dir, -EINVAL, "is not a regular file");
	refuse_file("/", -EINVAL, "/ is not a regular file");
	refuse_file("", -EINVAL, "is not a regular file");
	refuse_file("/dev/null", -EINVAL, "is not a regular file");
	refuse_file("/nowhere/keys", -ENOENT, "cannot open /nowhere");
	assert_int_equal(mkfifo(link, 0600), 0);
	refuse_file(link, -EINVAL, "is not a regular file");
	memset(long_path, 'x', sizeof(long_path) - 1);
	*long_path = '/';
	refuse_file(long_path, -ENAMETOOLONG, "cannot open");
	/* Relative to the working directory, and with parts that mean nothing. */
	assert_int_equal(chdir(test_dir), 0);
	accept_file("keys");
	accept_file(".//./keys");
	assert_int_equal(chdir("/"), 0);
}

TEST_WITH(test_size, setup, test_dir_remove)
{
	static char text[API_KEYS_FILE + 2];
	char *got = NULL, path[64];
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)getpid());
	memset(text, '#', API_KEYS_FILE + 1);
	put(file, text, 0600);
	refuse_file(file, -EFBIG, "has 262145 bytes; the limit is 262144");
	memcpy(text, "a:" KEY_A "\n", 19);
	text[API_KEYS_FILE] = 0;
	put(file, text, 0600);
	accept_file(file);
	/* Files whose size is told as none are read to their end, or to the limit. */
	if (!geteuid()) {
		assert_int_equal(secure_file_read(path, 1, &got, &len, err, sizeof(err)), -EFBIG);
		assert_null(got);
	}
}

/* Where others can put another file into its place it is none of ours. */
TEST_WITH(test_directories, setup, test_dir_remove)
{
	char sub[80], inner[96];

	strcpy(sub, at("sub"));
	strcpy(inner, at("sub/keys"));
	assert_int_equal(mkdir(sub, 0700), 0);
	put(inner, "a:" KEY_A, 0600);
	accept_file(inner);
	assert_int_equal(chmod(sub, 0777), 0);
	refuse_file(inner, -EPERM, "others can write into");
	assert_int_equal(chmod(sub, 0770), 0);
	refuse_file(inner, -EPERM, "(mode 0770)");
	assert_int_equal(chmod(sub, 0755), 0);
	assert_int_equal(chmod(test_dir, 0777), 0);
	refuse_file(inner, -EPERM, "(mode 0777)");
	/* As /tmp is. */
	assert_int_equal(chmod(test_dir, 01777), 0);
	accept_file(inner);
	if (geteuid())
		return;
	assert_int_equal(chown(inner, 12345, (gid_t)-1), 0);
	refuse_file(inner, -EPERM, "belongs to user 12345; it must be root's");
	assert_int_equal(chown(inner, 0, (gid_t)-1), 0);
	assert_int_equal(chown(sub, 12345, (gid_t)-1), 0);
	refuse_file(inner, -EPERM, "sub belongs to user 12345");
}

TEST_MAIN
