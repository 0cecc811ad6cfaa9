// SPDX-License-Identifier: MIT
/*
 * Export and import of weights between processes.
 *
 * Exported memory was frozen after its load had finished, so an imported copy is complete. Whether
 * it is the right one depends on the importer's information: it comes with the identity of the file
 * that it was loaded from and of the chip memory that it is in, and is used for that file only.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "case_info.h"
#include "model.h"
#include "space.h"
#include "weights.h"

int txda_model_weights(struct txda_model *model, unsigned rank, struct txda_weights **ret_weights)
{
	struct txda_context *context = txda__model_context(model);

	if (txda__forked(context))
		return -EPERM;
	if (rank >= model->tp)
		return txda__fail(context, -EINVAL, "rank %u does not exist; model %.60s has %u",
				  rank, model->info.name, model->tp);
	if (!model->rank[rank].weights)
		return txda__fail(context, -ENOENT, "rank %u of model %.60s has no weights", rank,
				  model->info.name);
	*ret_weights = txda_weights_ref(model->rank[rank].weights);
	return 0;
}

int txda_weights_info(struct txda_weights *weights, struct txda_weights_info *ret_info)
{
	struct txda_weights_info info = {
		.bytes = weights->bytes,
		.crc32c = weights->crc32c,
		.imported = weights->imported,
		.file_device = weights->dev,
		.file_inode = weights->inode,
		.file_mtime_ns = weights->mtime_ns,
		.file_ctime_ns = weights->ctime_ns,
		.memory_id = weights->memory_id,
	};

	if (txda__forked(weights->device->context))
		return -EPERM;
	return txda__copy_out(weights->device->context, ret_info, &info, sizeof(info),
			      "txda_weights_info");
}

int txda_weights_export(struct txda_weights *weights, int *ret_fd)
{
	if (txda__forked(weights->device->context))
		return -EPERM;
	if (!weights->keep)
		return txda__fail(weights->device->context, -ENOTSUP,
				  "the weights were loaded without keep_weights");
	return txda_buffer_export(weights->buffer, ret_fd);
}

/* Binds the memory and checks that it still has its contents. */
static int take(struct txda_weights *key, int fd, uint64_t memory_id)
{
	int r;

	r = txda__buffer_import(key->device, key->space, fd, key->bytes,
				TXDA__IMPORT_READ_ONLY | TXDA__IMPORT_KEPT, &key->buffer);
	/* After binding: a later reset invalidates the address space. */
	if (r >= 0)
		r = txda__weights_memory_id(key->space, &key->memory_id);
	if (r >= 0 && key->memory_id != memory_id)
		r = txda__fail(key->device->context, -ESTALE,
			       "chip %u was reset since the weights were loaded",
			       key->device->index);
	if (r < 0)
		key->buffer = txda_buffer_unref(key->buffer);
	return r;
}

/*
 * Refuses a second copy; which file the bytes are from cannot be checked here. The lock must be
 * held.
 */
static int is_there(struct txda__weights_table *table, const struct txda_weights *key)
{
	struct txda_weights *w = txda__weights_find(table, key);

	if (!w)
		return 0;
	w->refs--; /* not the last reference: the entry is in the table */
	return txda__fail(key->device->context, -EEXIST, "chip %u has these weights already",
			  key->device->index);
}

int txda_weights_import(struct txda_device *device, int fd, const struct txda_weights_info *info,
			struct txda_weights **ret_weights)
{
	struct txda_context *context = device->context;
	struct txda__weights_table *table = &context->weights;
	struct txda_weights key = {.device = device,
				   .keep = true,
				   .imported = true,
				   .state = TXDA__WEIGHTS_READY},
			    *w = NULL;
	struct txda_weights_info i;
	int r;

	if (txda__forked(context))
		return -EPERM;
	r = txda__copy_in(context, &i, sizeof(i), info, "txda_weights_info");
	if (r < 0)
		return r;
	if (!i.bytes || i.bytes > (1ull << 40))
		return txda__fail(context, -EINVAL, "weights of %llu bytes",
				  (unsigned long long)i.bytes);
	key.bytes = i.bytes;
	key.crc32c = i.crc32c;
	key.dev = i.file_device;
	key.inode = i.file_inode;
	key.mtime_ns = i.file_mtime_ns;
	key.ctime_ns = i.file_ctime_ns;
	r = txda__space_get(device, &key.space);
	if (r < 0)
		return r;
	pthread_mutex_lock(&table->lock);
	r = is_there(table, &key);
	pthread_mutex_unlock(&table->lock);
	if (r >= 0)
		r = take(&key, fd, i.memory_id);
	if (r < 0) {
		txda__space_put(key.space);
		return r;
	}
	pthread_mutex_lock(&table->lock);
	r = is_there(table, &key);
	if (r >= 0) {
		w = txda__weights_add(table, &key);
		if (!w)
			r = txda__fail(context, -ENOMEM, "out of memory");
	}
	pthread_mutex_unlock(&table->lock);
	if (r < 0) {
		txda_buffer_unref(key.buffer);
		txda__space_put(key.space);
		return r;
	}
	*ret_weights = w;
	return 0;
}

/* Describes the first difference between the weights and the file. */
static int compare(const struct txda_weights *w, const struct txda_weights *file, const char *name)
{
	struct txda_context *context = w->device->context;

	if (file->bytes != w->bytes)
		return txda__fail(context, -ESTALE, "%s has %llu bytes; the weights have %llu",
				  name, (unsigned long long)file->bytes,
				  (unsigned long long)w->bytes);
	if (file->crc32c != w->crc32c)
		return txda__fail(context, -ESTALE,
				  "%s has checksum 0x%08x; the weights are of 0x%08x", name,
				  file->crc32c, w->crc32c);
	return txda__fail(context, -ESTALE, "%s is another file, or was changed", name);
}

int txda_weights_check(struct txda_weights *weights, const char *path, unsigned rank)
{
	struct txda_context *context = weights->device->context;
	const struct txda__backend_ops *ops = context->backend->ops;
	struct txda_weights file = {0};
	struct case_info *info;
	int dir_fd, fd = -1, r;
	char err[400];

	if (txda__forked(context))
		return -EPERM;
	/* A load uses the weights of the chip's current address space. */
	if (ops->vm_lost && ops->vm_lost(weights->space->vm))
		return txda__fail(context, -ESTALE,
				  "chip %u was reset since the weights were loaded",
				  weights->device->index);
	info = malloc(sizeof(*info));
	if (!info)
		return txda__fail(context, -ENOMEM, "out of memory");
	r = txda__case_open(path, &dir_fd, info, err, sizeof(err));
	if (r < 0) {
		free(info);
		return txda__fail(context, r, "%s: %s", path, err);
	}
	if (rank >= info->tp) {
		r = txda__fail(context, -ESTALE,
			       "%s is compiled for %u chips; rank %u was requested", path, info->tp,
			       rank);
	} else {
		file.bytes = info->chip[rank].param_bytes;
		file.crc32c = info->chip[rank].param_crc32c;
		r = txda__case_file(dir_fd, info->chip[rank].param, file.bytes, &fd, err,
				    sizeof(err));
		if (r < 0)
			txda__note(context, "%s: %s", path, err);
	}
	if (r >= 0)
		r = txda__weights_identify(context, fd, info->chip[rank].param, &file);
	if (r >= 0 && !txda__weights_same_file(weights, &file))
		r = compare(weights, &file, info->chip[rank].param);
	if (fd >= 0)
		close(fd);
	close(dir_fd);
	free(info);
	return r;
}
