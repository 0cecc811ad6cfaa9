/* SPDX-License-Identifier: MIT */
/* Instances of kernels for each number of rows. Included by path.c. */

/* The cases of a switch over the number of rows: BODY with a constant. */
#define ROW_CASES_4(BODY, ...)                                                                     \
	case 1: BODY(1, __VA_ARGS__); break;                                                       \
	case 2: BODY(2, __VA_ARGS__); break;                                                       \
	case 3: BODY(3, __VA_ARGS__); break;                                                       \
	case 4:                                                                                    \
		BODY(4, __VA_ARGS__);                                                              \
		break

#define ROW_CASES_6(BODY, ...)                                                                     \
	ROW_CASES_4(BODY, __VA_ARGS__);                                                            \
	case 5: BODY(5, __VA_ARGS__); break;                                                       \
	case 6:                                                                                    \
		BODY(6, __VA_ARGS__);                                                              \
		break

#define ROW_CASES_8(BODY, ...)                                                                     \
	ROW_CASES_6(BODY, __VA_ARGS__);                                                            \
	case 7: BODY(7, __VA_ARGS__); break;                                                       \
	case 8:                                                                                    \
		BODY(8, __VA_ARGS__);                                                              \
		break

#define ROW_CASES_12(BODY, ...)                                                                    \
	ROW_CASES_8(BODY, __VA_ARGS__);                                                            \
	case 9: BODY(9, __VA_ARGS__); break;                                                       \
	case 10: BODY(10, __VA_ARGS__); break;                                                     \
	case 11: BODY(11, __VA_ARGS__); break;                                                     \
	case 12: BODY(12, __VA_ARGS__); break
