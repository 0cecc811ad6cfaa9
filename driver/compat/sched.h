/* SPDX-License-Identifier: GPL-2.0 */
/*
 * drm_sched with the interface of the newest kernel.
 *
 * Differences: the arguments of drm_sched_init() became a struct in 6.15, of which a later kernel
 * takes num_rqs away. drm_sched_job_init() got a client id in 6.17 (also in Debian's 6.12). Since
 * 6.17 timedout_job can report a false timeout; before that the scheduler lost the job unless the
 * driver put it back.
 */
#ifndef TXDA_COMPAT_SCHED_H
#define TXDA_COMPAT_SCHED_H

#include <drm/gpu_scheduler.h>

#ifndef TXDA_HAVE_SCHED_ARGS
struct drm_sched_init_args {
	const struct drm_sched_backend_ops *ops;
	struct workqueue_struct *submit_wq;
	struct workqueue_struct *timeout_wq;
	u32 num_rqs;
	u32 credit_limit;
	unsigned int hang_limit;
	long timeout;
	atomic_t *score;
	const char *name;
	struct device *dev;
};
#endif

/* A scheduler of one entity, of DRM_SCHED_PRIORITY_KERNEL, so of one run queue. */
static inline int txda_sched_init(struct drm_gpu_scheduler *sched, struct drm_sched_init_args *args)
{
#if !defined(TXDA_HAVE_SCHED_ARGS) || defined(TXDA_HAVE_SCHED_NUM_RQS)
	args->num_rqs = 1;
#endif
#ifdef TXDA_HAVE_SCHED_ARGS
	return drm_sched_init(sched, args);
#else
	return drm_sched_init(sched, args->ops, args->submit_wq, args->num_rqs, args->credit_limit,
			      args->hang_limit, args->timeout, args->timeout_wq, args->score,
			      args->name, args->dev);
#endif
}

static inline int txda_sched_job_init(struct drm_sched_job *job, struct drm_sched_entity *entity,
				      u32 credits, void *owner, u64 client_id)
{
#ifdef TXDA_HAVE_SCHED_CLIENT_ID
	return drm_sched_job_init(job, entity, credits, owner, client_id);
#else
	return drm_sched_job_init(job, entity, credits, owner);
#endif
}

/*
 * Return value of timedout_job when the scheduler should carry on as if no timeout had happened:
 * the job is still running, or its fence has signalled meanwhile and it can be freed normally.
 */
static inline enum drm_gpu_sched_stat txda_sched_keep(struct drm_sched_job *job)
{
#ifdef TXDA_HAVE_SCHED_NO_HANG
	return DRM_GPU_SCHED_STAT_NO_HANG;
#else
	struct drm_gpu_scheduler *sched = job->sched;

	spin_lock(&sched->job_list_lock);
	list_add(&job->list, &sched->pending_list);
	/*
	 * The job may be done and the work that frees jobs may have run already, so queue it again.
	 */
	queue_work(sched->submit_wq, &sched->work_free_job);
	spin_unlock(&sched->job_list_lock);
	return DRM_GPU_SCHED_STAT_NOMINAL;
#endif
}

#endif /* TXDA_COMPAT_SCHED_H */
