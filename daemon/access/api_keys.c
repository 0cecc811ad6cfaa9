// SPDX-License-Identifier: MIT
#include "api_keys.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "secure_file.h"
#include "sha256.h"
#include "utf8.h"

#define DIGEST 32

struct api_key {
	uint8_t digest[DIGEST];
	unsigned line;
	struct identity user;
};

struct api_keys {
	user_id next_uid; /* number of the next user without an account; never reused */
	unsigned n;
	struct api_key keys[];
};

/* ---- users ----------------------------------------------------------------------------------- */

static void set_account(const struct passwd *account, struct identity *ret)
{
	int n = IDENTITY_GROUPS;

	ret->uid = account->pw_uid;
	ret->gid = account->pw_gid;
	if (getgrouplist(account->pw_name, account->pw_gid, ret->groups, &n) >= 0)
		ret->n_groups = (unsigned)n;
}

static bool set_number(const char *name, struct identity *ret)
{
	unsigned long long n = strtoull(name, NULL, 10);
	const struct passwd *account;

	/* The highest one stands for none. */
	if (n >= (uid_t)-1)
		return false;
	account = getpwuid((uid_t)n);
	if (account)
		set_account(account, ret);
	else
		ret->uid = n;
	return true;
}

static const struct identity *find_own(const struct api_keys *k, const char *name)
{
	for (unsigned i = 0; k && i < k->n; i++)
		if (k->keys[i].user.uid >= IDENTITY_OWN_UIDS && !strcmp(k->keys[i].user.name, name))
			return &k->keys[i].user;
	return NULL;
}

/* Fills in the user with that name; false: it is a number that is no uid. */
static bool set_user(struct api_keys *k, const struct api_keys *before, const char *name,
		     struct identity *ret)
{
	const struct passwd *account;
	const struct identity *same;

	*ret = (struct identity){.gid = (gid_t)-1};
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (!name[strspn(name, "0123456789")])
		return set_number(name, ret);
	account = getpwnam(name);
	if (account) {
		set_account(account, ret);
		return true;
	}
	same = find_own(k, name);
	if (!same)
		same = find_own(before, name);
	ret->uid = same ? same->uid : k->next_uid++;
	return true;
}

/* ---- the text -------------------------------------------------------------------------------- */

struct reader {
	struct api_keys *keys;
	const struct api_keys *before;
	const char *file;
	unsigned line;
	char *err;
	size_t errlen;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct reader *r, const char *format, ...)
{
	va_list args;
	int n = snprintf(r->err, r->errlen, "%s, line %u: ", r->file, r->line);

	va_start(args, format);
	if (n > 0 && (size_t)n < r->errlen)
		vsnprintf(r->err + n, r->errlen - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* How many characters of @text are letters, digits or one of @more. */
static size_t span(const char *text, size_t len, const char *more)
{
	size_t n = 0;

	while (n < len && (is_alnum(text[n]) || (text[n] && strchr(more, text[n]))))
		n++;
	return n;
}

static int check_name(struct reader *r, const char *name, size_t len)
{
	if (!len || len >= IDENTITY_NAME)
		return wrong(r, "the user's name has %zu characters; it must have 1 to %d", len,
			     IDENTITY_NAME - 1);
	if (span(name, len, "._@-") != len || *name == '-')
		return wrong(r, "a user's name may only have letters, digits and ._@-, and may not "
				"begin with -");
	return 0;
}

/* The characters that the header Authorization can carry (RFC 6750). */
static int check_key(struct reader *r, const char *key, size_t len)
{
	if (len < API_KEYS_MIN_BYTES || len > API_KEYS_MAX_BYTES)
		return wrong(r, "the key has %zu characters; it must have %d to %d", len,
			     API_KEYS_MIN_BYTES, API_KEYS_MAX_BYTES);
	if (span(key, len, "-._~+/=") != len)
		return wrong(r, "a key may only have letters, digits and -._~+/=");
	return 0;
}

static void digest_of(const char *key, size_t len, uint8_t digest[DIGEST])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_update(&h, key, len);
	sha256_final(&h, digest);
	explicit_bzero(&h, sizeof(h));
}

static int add_key(struct reader *r, const char *name, size_t name_len, const char *key, size_t len,
		   bool admin)
{
	struct api_keys *k = r->keys;
	struct api_key *new = &k->keys[k->n];
	char user[IDENTITY_NAME];

	if (k->n == API_KEYS_MAX)
		return wrong(r, "more than %d keys", API_KEYS_MAX);
	snprintf(user, sizeof(user), "%.*s", (int)name_len, name);
	if (!set_user(k, r->before, user, &new->user))
		return wrong(r, "a user's number must be below %u", (uid_t)-1);
	new->user.admin = admin;
	new->line = r->line;
	digest_of(key, len, new->digest);
	for (unsigned i = 0; i < k->n; i++)
		if (!memcmp(k->keys[i].digest, new->digest, DIGEST))
			return wrong(r, "the same key is in line %u", k->keys[i].line);
	k->n++;
	return 0;
}

/* USER:KEY[:admin], with surrounding blanks removed. */
static int read_line(struct reader *r, const char *line, size_t len)
{
	const char *end = line + len, *key = memchr(line, ':', len), *mark;
	size_t name_len, key_len;
	int error;

	if (!key)
		return wrong(r, "a ':' between user and key is missing");
	name_len = (size_t)(key++ - line);
	mark = memchr(key, ':', (size_t)(end - key));
	key_len = (size_t)((mark ? mark : end) - key);
	error = check_name(r, line, name_len);
	if (!error)
		error = check_key(r, key, key_len);
	if (!error && mark && (end - mark != 6 || memcmp(mark, ":admin", 6)))
		error = wrong(r, "only ':admin' may follow the key");
	return error ? error : add_key(r, line, name_len, key, key_len, mark);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static int read_text(struct reader *r, const char *text, size_t len)
{
	const char *end = text + len;
	int error = 0;

	text += utf8_mark(text, len);
	while (text < end && !error) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));
		const char *from = text, *to = line_end ? line_end : end;

		r->line++;
		while (from < to && is_blank(*from))
			from++;
		while (from < to && is_blank(to[-1]))
			to--;
		if (from < to && *from != '#')
			error = read_line(r, from, (size_t)(to - from));
		text = line_end ? line_end + 1 : end;
	}
	if (!error && !r->keys->n) {
		snprintf(r->err, r->errlen, "%s has no keys", r->file);
		error = -EINVAL;
	}
	return error;
}

/* ---- the set --------------------------------------------------------------------------------- */

int api_keys_parse(const char *text, size_t len, const char *name, const struct api_keys *before,
		   struct api_keys **ret, char *err, size_t errlen)
{
	struct reader r = {.before = before, .file = name, .err = err, .errlen = errlen};
	size_t lines = 1;
	int error;

	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	if (lines > API_KEYS_MAX)
		lines = API_KEYS_MAX;
	r.keys = calloc(1, sizeof(*r.keys) + lines * sizeof(r.keys->keys[0]));
	if (!r.keys) {
		snprintf(err, errlen, "%s: out of memory", name);
		return -ENOMEM;
	}
	/* The first user is for clients that need no key. */
	r.keys->next_uid = before ? before->next_uid : IDENTITY_OWN_UIDS + 1;
	error = read_text(&r, text, len);
	if (error)
		api_keys_free(r.keys);
	else
		*ret = r.keys;
	return error;
}

int api_keys_load(const char *path, const struct api_keys *before, struct api_keys **ret, char *err,
		  size_t errlen)
{
	char *text;
	size_t len;
	int r = secure_file_read(path, API_KEYS_FILE, &text, &len, err, errlen);

	if (r)
		return r;
	r = api_keys_parse(text, len, path, before, ret, err, errlen);
	secure_file_free(text, len);
	return r;
}

void api_keys_free(struct api_keys *k)
{
	if (k)
		explicit_bzero(k->keys, k->n * sizeof(k->keys[0]));
	free(k);
}

/* All ones if the digests are equal, else 0; in constant time. */
static uint32_t same_digest(const uint8_t *a, const uint8_t *b)
{
	uint32_t difference = 0;

	for (unsigned i = 0; i < DIGEST; i++)
		difference |= (uint32_t)(a[i] ^ b[i]);
	return ((difference - 1) >> 31) * UINT32_MAX;
}

const struct identity *api_keys_find(const struct api_keys *k, const char *key, size_t len)
{
	uint8_t digest[DIGEST];
	uint32_t found = 0; /* index of the key plus one */

	digest_of(key, len, digest);
	for (uint32_t i = 0; i < k->n; i++)
		found |= same_digest(k->keys[i].digest, digest) & (i + 1);
	return found ? &k->keys[found - 1].user : NULL;
}

bool api_keys_has_user(const struct api_keys *k, user_id uid)
{
	for (unsigned i = 0; i < k->n; i++)
		if (k->keys[i].user.uid == uid)
			return true;
	return false;
}

unsigned api_keys_count(const struct api_keys *k)
{
	return k->n;
}
