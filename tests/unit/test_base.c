// SPDX-License-Identifier: MIT
/* What every program stands on, lib/base: checksums, hashes, numbers, and names of the instruction set. */

#include "unit.h"
#include "crc32c.h"
#include "hash.h"
#include "isa_names.h"
#include "number.h"
#include "txda_isa.h"

TEST(crc_is_the_same_either_way)
{
	static unsigned char data[100000];

	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c_portable(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 2654435761u >> 13);
	for (size_t n = 0; n < sizeof(data); n = n * 3 + 1)
		for (size_t at = 0; at < 9 && at <= n; at++)
			assert_int_equal(crc32c(0x1234, data + at, n - at),
					 crc32c_portable(0x1234, data + at, n - at));
	assert_int_equal(crc32c(crc32c(0, data, 70001), data + 70001, 29999),
			 crc32c(0, data, sizeof(data)));
	assert_int_equal(crc32c_join(crc32c(0, data, 70001), crc32c(0, data + 70001, 29999), 29999),
			 crc32c(0, data, sizeof(data)));
	assert_int_equal(crc32c_join(0, 0xe3069283, 9), 0xe3069283);
	assert_int_equal(crc32c_join(0xe3069283, 0, 0), 0xe3069283);
}

/* Seeds, fingerprints and files depend on these. */
TEST(hashes_stay_what_they_are)
{
	assert_true(hash_fnv1a(HASH_FNV1A, "", 0) == 0xcbf29ce484222325ull);
	assert_true(hash_fnv1a(HASH_FNV1A, "foobar", 6) == 0x85944171f73967e8ull);
	assert_true(hash_fnv1a(hash_fnv1a(HASH_FNV1A, "foo", 3), "bar", 3) ==
		    0x85944171f73967e8ull);
	/* splitmix64 from 0 */
	assert_true(hash_spread(HASH_GOLDEN) == 0xe220a8397b1dcdafull);
	assert_true(hash_spread(2 * HASH_GOLDEN) == 0x6e789e6aa1b965f4ull);
}

TEST(everything_has_a_name)
{
	for (unsigned i = 0; i < TXDA_OP_COUNT; i++)
		assert_true(strlen(isa_opcode_name(i)) > 3);
	for (unsigned i = 0; i < TXDA_DTYPE_COUNT; i++) {
		assert_true(strlen(isa_dtype_name(i)) > 1);
		assert_int_equal(isa_dtype_bytes(i) == 0, txda_is_grouped(i));
	}
	for (unsigned i = 0; i < TXDA_LAYOUT_COUNT; i++)
		assert_true(strlen(isa_layout_name(i)) > 3);
	for (unsigned i = 0; i < TXDA_SLOT_KIND_COUNT; i++)
		assert_true(strlen(isa_slot_kind_name(i)) > 1);
	for (unsigned i = 0; i < TXDA_FAULT_CODE_COUNT; i++)
		assert_true(strlen(isa_fault_name(i)) > 3);
	assert_string_equal(isa_symbol_name(TXDA_SYM_N), "N");
}

/* Numbers are those of hostile programs. */
TEST(what_is_none_is_called_so)
{
	static const unsigned numbers[] = {TXDA_OP_COUNT, 255, 65535, UINT32_MAX};

	for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
		assert_string_equal(isa_opcode_name(numbers[i]), "?");
		assert_string_equal(isa_dtype_name(numbers[i]), "?");
		assert_int_equal(isa_dtype_bytes(numbers[i]), 0);
		assert_string_equal(isa_layout_name(numbers[i]), "?");
		assert_string_equal(isa_slot_kind_name(numbers[i]), "?");
		assert_string_equal(isa_symbol_name(numbers[i]), "?");
		assert_string_equal(isa_fault_name(numbers[i]), "unknown fault");
		assert_null(isa_fault_detail(numbers[i]));
	}
	assert_string_equal(isa_symbol_name(TXDA_SYM_COUNT - 1), "?");
}

TEST(sizes_are_bytes_with_units)
{
	static const struct {
		const char *word;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"17", 17},
		{"4k", 4096},
		{"4K", 4096},
		{"3M", 3 << 20},
		{"8G", 8ull << 30},
		{"2T", 2ull << 40},
		{"1GiB", 1ull << 30},
		{"1gb", 1ull << 30},
		{"18446744073709551615", UINT64_MAX},
	};
	static const char *const bad[] = {"",
					  "-1",
					  "+1",
					  " 1",
					  "1 ",
					  "G",
					  "1X",
					  "1GG",
					  "0x10",
					  "1.5G",
					  "18446744073709551616",
					  "99999999999T",
					  "1Gi"};
	uint64_t bytes = 77;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(number_parse_size(good[i].word, UINT64_MAX, &bytes));
		assert_int_equal(bytes, good[i].bytes);
	}
	bytes = 77;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(number_parse_size(bad[i], UINT64_MAX, &bytes));
	assert_int_equal(bytes, 77);
	assert_true(number_parse_size("4K", 4096, &bytes));
	assert_false(number_parse_size("4K", 4095, &bytes));
	assert_int_equal(bytes, 4096);
}

TEST(numbers_are_digits_up_to_a_limit)
{
	static const char *const bad[] = {"",
					  "-1",
					  "+1",
					  " 1",
					  "1 ",
					  "x",
					  "1x",
					  "0x1",
					  "1.",
					  "101",
					  "18446744073709551616",
					  "99999999999999999999"};
	const char *pos = "007,8";
	uint64_t n = 77;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(number_parse(bad[i], 100, &n));
	assert_false(number_parse("18446744073709551616", UINT64_MAX, &n));
	assert_int_equal(n, 77);
	assert_true(number_parse("100", 100, &n));
	assert_int_equal(n, 100);
	assert_true(number_parse("18446744073709551615", UINT64_MAX, &n));
	assert_true(n == UINT64_MAX);
	assert_true(number_read(&pos, 7, &n));
	assert_int_equal(n, 7);
	assert_string_equal(pos, ",8");
	assert_false(number_read(&pos, 7, &n));
	assert_string_equal(pos, ",8");
}

TEST_MAIN
