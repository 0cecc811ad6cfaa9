/* SPDX-License-Identifier: MIT */
/*
 * As much of the kernel as the KUnit tests of the driver and what they test need, in user space. It is included before
 * each of those files, whose own #includes of the kernel's headers are taken out (meson.build).
 *
 * One thread; memory is malloc()'s, so that a sanitizer sees every access.
 */
#ifndef KUNIT_KERNEL_H
#define KUNIT_KERNEL_H

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------------- */

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
/* Not the C library's, which printf() wants another length for. */
typedef unsigned long long u64;
typedef long long s64;
typedef u64 resource_size_t;
typedef struct {
	long long counter;
} atomic64_t;
typedef struct {
	int counter;
} atomic_t;
typedef struct {
	int refs;
} refcount_t;
typedef struct {
	int held;
} spinlock_t, raw_spinlock_t;
struct mutex {
	int held;
};

#define __iomem
#define __force
#define CONFIG_64BIT	   1
#define PAGE_SHIFT	   12
#define PAGE_SIZE	   (1ul << PAGE_SHIFT)
#define U32_MAX		   UINT32_MAX
#define U64_MAX		   (~0ull)
#define SZ_4K		   0x1000u
#define SZ_8K		   0x2000u
#define SZ_16K		   0x4000u
#define SZ_1M		   0x100000u
#define SZ_2M		   0x200000u
#define SZ_4M		   0x400000u
#define SZ_16M		   0x1000000u
#define USEC_PER_SEC	   1000000u
#define NSEC_PER_SEC	   1000000000u
#define BIT(n)		   (1ul << (n))
#define BIT_ULL(n)	   (1ull << (n))
#define ALIGN_DOWN(x, a)   ((x) & ~((__typeof__(x))(a)-1))
#define ALIGN(x, a)	   ALIGN_DOWN((x) + (a)-1, a)
#define IS_ALIGNED(x, a)   (!((x) & ((__typeof__(x))(a)-1)))
#define min(a, b)	   ((a) < (b) ? (a) : (b))
#define max(a, b)	   ((a) > (b) ? (a) : (b))
#define div_u64(a, b)	   ((u64)(a) / (u32)(b))
#define min_t(type, a, b)  min((type)(a), (type)(b))
#define min3(a, b, c)	   min(a, min(b, c))
#define ARRAY_SIZE(a)	   (sizeof(a) / sizeof((a)[0]))
#define is_power_of_2(n)   ((n) && !((n) & ((n)-1)))
#define sizeof_field(t, f) sizeof(((t *)0)->f)

static inline u64 div_u64_rem(u64 n, u32 by, u32 *ret_rest)
{
	*ret_rest = n % by;
	return n / by;
}

/* A warning of the kernel is a test that fails. */
#define WARN_ON_ONCE(what)                                                                         \
	({                                                                                         \
		bool warned = (what);                                                              \
                                                                                                   \
		if (warned)                                                                        \
			kunit_complain(kunit_now, __FILE__, __LINE__, "warning: " #what);          \
		warned;                                                                            \
	})

/* ---- lists ----------------------------------------------------------------------------------- */

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = {&name, &name}

static inline void INIT_LIST_HEAD(struct list_head *head)
{
	head->next = head->prev = head;
}

static inline void list_add(struct list_head *entry, struct list_head *after)
{
	entry->next = after->next;
	entry->prev = after;
	after->next->prev = entry;
	after->next = entry;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	list_add(entry, head->prev);
}

static inline void list_del_init(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	INIT_LIST_HEAD(entry);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	list_del_init(entry);
	list_add_tail(entry, head);
}

static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
	if (list->next == list)
		return;
	list->next->prev = head->prev;
	list->prev->next = head;
	head->prev->next = list->next;
	head->prev = list->prev;
}

static inline int list_empty(const struct list_head *head)
{
	return head->next == head;
}

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_first_entry_or_null(head, type, member)                                               \
	((head)->next == (head) ? NULL : container_of((head)->next, type, member))
#define list_for_each_entry(pos, head, member)                                                     \
	for (pos = container_of((head)->next, __typeof__(*pos), member); &pos->member != (head);   \
	     pos = container_of(pos->member.next, __typeof__(*pos), member))
#define list_for_each_entry_safe(pos, n, head, member)                                             \
	for (pos = container_of((head)->next, __typeof__(*pos), member),                           \
	    n = container_of(pos->member.next, __typeof__(*pos), member);                          \
	     &pos->member != (head);                                                               \
	     pos = n, n = container_of(n->member.next, __typeof__(*n), member))

/* ---- memory ---------------------------------------------------------------------------------- */

#define GFP_KERNEL		  0
#define GFP_KERNEL_ACCOUNT	  0
#define __GFP_NOWARN		  0
#define struct_size(p, member, n) (sizeof(*(p)) + sizeof(*(p)->member) * (n))
#define kzalloc_obj(obj, gfp)	  calloc(1, sizeof(obj))
#define kvzalloc(bytes, gfp)	  calloc(1, bytes)
#define kvfree(p)		  free(p)
#define kfree(p)		  free(p)
#define get_zeroed_page(gfp)	  ((unsigned long)calloc(1, SZ_4K))
#define free_page(page)		  free((void *)(page))

/* ---- locks, registers, log: one thread, memory, silence -------------------------------------- */

#define spin_lock_init(lock)	  ((lock)->held = 0)
#define raw_spin_lock_init(lock)  spin_lock_init(lock)
#define spin_lock(lock)		  assert(!(lock)->held++)
#define spin_unlock(lock)	  assert(!--(lock)->held)
#define mutex_init(lock)	  ((lock)->held = 0)
#define mutex_lock(lock)	  assert(!(lock)->held++)
#define mutex_unlock(lock)	  assert(!--(lock)->held)
#define mutex_destroy(lock)	  assert(!(lock)->held)
#define lockdep_assert_held(lock) assert((lock)->held)
#define wmb()			  __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define rmb()			  wmb()
#define memcpy_fromio(to, at, n)  memcpy(to, at, n)
#define readl(at)		  (*(volatile u32 *)(at))
#define writel(value, at)	  (*(volatile u32 *)(at) = (value))
#define writeq(value, at)	  (*(volatile u64 *)(at) = (value))
#define readq(at)		  (*(volatile u64 *)(at))
#define refcount_set(ref, n)	  ((ref)->refs = (n))
#define atomic64_read(value)	  ((value)->counter)
#define atomic_read(v)		  ((v)->counter)
#define atomic_inc_return(v)	  (++(v)->counter)
#define atomic_dec(v)		  ((v)->counter--)
#define atomic_read_acquire(v)	  ((v)->counter)
#define atomic_set_release(v, to) ((v)->counter = (to))
#define atomic_fetch_inc(v)	  ((v)->counter++)
#define atomic_fetch_dec(v)	  ((v)->counter--)
#define WRITE_ONCE(to, value)	  (*(volatile __typeof__(to) *)&(to) = (value))

static inline void drm_err(const void *drm, const char *format, ...)
{
}
#define drm_warn drm_err

/* Time of its own: a register that has the wrong value keeps it. */
#define read_poll_timeout(read, value, done, sleep_us, timeout_us, before, ...)                    \
	({                                                                                         \
		(value) = read(__VA_ARGS__);                                                       \
		(done) ? 0 : -ETIMEDOUT;                                                           \
	})

static inline int drmm_mutex_init(const void *drm, struct mutex *lock)
{
	mutex_init(lock);
	return 0;
}

static inline bool atomic_inc_unless_negative(atomic_t *v)
{
	if (v->counter < 0)
		return false;
	v->counter++;
	return true;
}

static inline int atomic_cmpxchg(atomic_t *v, int from, int to)
{
	int was = v->counter;

	if (was == from)
		v->counter = to;
	return was;
}

/* ---- DRAM: pages of a small chip ------------------------------------------------------------- */

struct txda_buddy {
	u64 size;
	bool taken[512];
};

static inline int txda_buddy_init(struct txda_buddy *mm, u64 bytes, u64 page)
{
	assert(bytes / page <= sizeof(mm->taken));
	*mm = (struct txda_buddy){.size = bytes};
	return 0;
}

static inline void txda_buddy_fini(struct txda_buddy *mm)
{
	for (unsigned i = 0; i < sizeof(mm->taken); i++)
		assert(!mm->taken[i]);
}

/* ---- scatter lists, firmware ----------------------------------------------------------------- */

struct scatterlist {
	u64 dma_address;
	u32 dma_length;
};

struct sg_table {
	struct scatterlist *sgl;
	unsigned int nents;
};

#define sg_dma_address(sg) ((sg)->dma_address)
#define sg_dma_len(sg)	   ((sg)->dma_length)
#define for_each_sgtable_dma_sg(sgt, sg, i)                                                        \
	for (i = 0, sg = (sgt)->sgl; i < (int)(sgt)->nents; i++, sg++)

static inline int sg_alloc_table(struct sg_table *sgt, unsigned int nents, int gfp)
{
	sgt->sgl = calloc(nents, sizeof(*sgt->sgl));
	sgt->nents = nents;
	return sgt->sgl ? 0 : -ENOMEM;
}

static inline void sg_free_table(struct sg_table *sgt)
{
	free(sgt->sgl);
}

struct firmware {
	size_t size;
	const u8 *data;
};

u32 crc32c(u32 crc, const void *from, size_t bytes);

/* ---- KUnit ----------------------------------------------------------------------------------- */

struct kunit {
	const char *name;
	bool failed;
	void *memory[8]; /* until the test is over */
	unsigned n_memory;
};

struct kunit_case {
	void (*run)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	struct kunit_case *test_cases;
};

extern struct kunit *kunit_now;

void kunit_complain(struct kunit *test, const char *file, int line, const char *what);
void *kunit_kzalloc(struct kunit *test, size_t bytes, int gfp);
int kunit_main(struct kunit_suite **suites, unsigned count);

#define KUNIT_CASE(name)                                                                           \
	{                                                                                          \
		name, #name                                                                        \
	}
#define KUNIT_EXPECT_TRUE(test, what)                                                              \
	do {                                                                                       \
		if (!(what))                                                                       \
			kunit_complain(test, __FILE__, __LINE__, #what);                           \
	} while (0)
#define KUNIT_EXPECT_EQ(test, a, b)    KUNIT_EXPECT_TRUE(test, (u64)(a) == (u64)(b))
#define KUNIT_EXPECT_FALSE(test, what) KUNIT_EXPECT_TRUE(test, !(what))
#define KUNIT_ASSERT_TRUE(test, what)                                                              \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			kunit_complain(test, __FILE__, __LINE__, #what);                           \
			abort();                                                                   \
		}                                                                                  \
	} while (0)
#define KUNIT_ASSERT_EQ(test, a, b)    KUNIT_ASSERT_TRUE(test, (u64)(a) == (u64)(b))
#define KUNIT_ASSERT_NOT_NULL(test, p) KUNIT_ASSERT_TRUE(test, (p) != NULL)
#define kunit_test_suites(...)                                                                     \
	int main(void)                                                                             \
	{                                                                                          \
		struct kunit_suite *suites[] = {__VA_ARGS__};                                      \
                                                                                                   \
		return kunit_main(suites, sizeof(suites) / sizeof(suites[0]));                     \
	}

#endif
