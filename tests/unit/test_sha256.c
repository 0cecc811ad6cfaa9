// SPDX-License-Identifier: MIT
/* SHA-256: the examples of FIPS 180-4, whole and in pieces of each size. */
#include "unit.h"
#include "sha256.h"

static void digest(const char *text, size_t len, size_t piece, char ret[65])
{
	struct sha256 h;
	uint8_t out[32];

	sha256_init(&h);
	for (size_t at = 0; at < len; at += piece)
		sha256_update(&h, text + at, len - at < piece ? len - at : piece);
	sha256_final(&h, out);
	for (unsigned i = 0; i < 32; i++)
		sprintf(ret + 2 * i, "%02x", out[i]);
}

TEST(examples)
{
	static const struct {
		const char *text, *digest;
	} known[] = {
		{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
		{"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
		 "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
		 "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
	};
	static char million[1000000];
	char got[65];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		size_t len = strlen(known[i].text);

		for (size_t piece = 1; piece <= len + 1; piece++) {
			digest(known[i].text, len, piece, got);
			assert_string_equal(got, known[i].digest);
		}
	}
	memset(million, 'a', sizeof(million));
	digest(million, sizeof(million), 777, got);
	assert_string_equal(got,
			    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_MAIN
