// SPDX-License-Identifier: MIT
#include "fake_drm_internal.h"

struct fake_drm_knobs fake_drm;
struct fake_kernel fake;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- ioctls: what the chip is ---------------------------------------------------------------- */

void fake_answer(struct drm_txda_answer *answer, const void *from, uint32_t bytes)
{
	char *to = (char *)(uintptr_t)answer->pointer;

	if (to) {
		memset(to, 0, answer->size);
		memcpy(to, from, answer->size < bytes ? answer->size : bytes);
	}
	answer->size = bytes;
}

static int dev_query(struct file *file, void *arg)
{
	struct drm_txda_dev_query *q = arg;
	union {
		struct drm_txda_device_info device;
		struct drm_txda_memory_info memory;
		struct drm_txda_firmware_info firmware;
		struct drm_txda_topology_info topology;
		struct drm_txda_reset_info reset;
		struct drm_txda_port_info port;
	} answer;
	uint32_t bytes;

	memset(&answer, 0, sizeof(answer));
	switch (q->type) {
	case DRM_TXDA_QUERY_DEVICE:
		bytes = sizeof(answer.device);
		snprintf((char *)answer.device.name, sizeof(answer.device.name), "TX8 (fake)");
		/* all sixteen bytes, without a NUL */
		snprintf((char *)answer.device.serial, 16, "FAKE-SERIAL-%03u", file->slot);
		answer.device.serial[15] = '!';
		answer.device.isa_major = TXDA_ISA_MAJOR;
		answer.device.caps = DRM_TXDA_CAP_CMODEL | DRM_TXDA_CAP_PRECISE;
		answer.device.cores = 2;
		break;
	case DRM_TXDA_QUERY_MEMORY:
		bytes = sizeof(answer.memory);
		answer.memory.device_bytes = FAKE_CHIP_BYTES;
		fake_reap();
		answer.memory.device_used = fake.used[file->chip];
		answer.memory.device_mappable = FAKE_CHIP_BYTES;
		break;
	case DRM_TXDA_QUERY_RESET:
		bytes = sizeof(answer.reset);
		answer.reset.queue_resets = 3;
		answer.reset.chip_resets = fake.resets[file->chip];
		break;
	case DRM_TXDA_QUERY_FIRMWARE:
		bytes = sizeof(answer.firmware);
		answer.firmware.version = 0x10203;
		break;
	case DRM_TXDA_QUERY_TOPOLOGY:
		bytes = sizeof(answer.topology);
		answer.topology.card = fake_drm.no_links ? 100 + file->slot : 0xc0ffee;
		answer.topology.card_index = fake_drm.no_links ? 0 : file->slot;
		answer.topology.n_ports = 1;
		break;
	case DRM_TXDA_QUERY_PORT:
		if (q->index)
			return -ENOENT;
		bytes = sizeof(answer.port);
		answer.port.state = fake_drm.no_links ? DRM_TXDA_PORT_DOWN : DRM_TXDA_PORT_UP;
		answer.port.peer_card = 101;
		break;
	default: return -EINVAL;
	}
	if (fake_drm.known_bytes && bytes > fake_drm.known_bytes)
		bytes = fake_drm.known_bytes;
	fake_answer(&q->answer, &answer, bytes);
	return 0;
}

static int version(struct file *file, void *arg)
{
	struct drm_version *v = arg;

	v->version_major = fake_drm.version_major;
	v->version_minor = 0;
	v->version_patchlevel = 7;
	if (v->name_len > 4)
		v->name_len = 4;
	if (v->name_len) /* who asks for the length has no room yet */
		memcpy(v->name, "txda", v->name_len);
	return 0;
}
static int client_name(struct file *file, void *arg)
{
	return -EINVAL; /* as a kernel that does not know it */
}

static const struct fake_ioctl own_ioctls[] = {
	{DRM_IOCTL_VERSION, version},
	{DRM_IOWR(
		 0xD1, struct { __u64 a[2]; }),
	 client_name},
	{DRM_IOCTL_TXDA_DEV_QUERY, dev_query},
	{0, NULL},
};

/* ---- the kernel ------------------------------------------------------------------------------ */

static void count(unsigned long request)
{
	unsigned i = 0;

	fake.n_calls++;
	while (fake.calls[i].request && fake.calls[i].request != request)
		i++;
	fake.calls[i].request = request;
	fake.calls[i].n++;
}

static bool fails(unsigned long request)
{
	if (!fake_drm.fail_error || (fake_drm.fail_request && fake_drm.fail_request != request))
		return false;
	return fake_drm.fail_after-- == 0;
}

/* What takes things away does so in any case: a kernel that could not would leak. */
static bool takes_away(unsigned long request, const void *arg)
{
	const struct drm_txda_vm_bind *bind = arg;
	const struct drm_txda_vm_set_group *group = arg;

	switch (request) {
	case DRM_IOCTL_GEM_CLOSE:
	case DRM_IOCTL_SYNCOBJ_DESTROY:
	case DRM_IOCTL_TXDA_QUEUE_DESTROY:
	case DRM_IOCTL_TXDA_VM_DESTROY: return true;
	case DRM_IOCTL_TXDA_VM_BIND:
		return ((const struct drm_txda_bind_op *)(uintptr_t)bind->ops.array)->flags &
		       DRM_TXDA_BIND_UNMAP;
	case DRM_IOCTL_TXDA_VM_SET_GROUP: return !group->members.count;
	default: return false;
	}
}

static int serve(struct file *file, unsigned long request, void *arg)
{
	static const struct fake_ioctl *const tables[] = {own_ioctls, fake_mem_ioctls,
							  fake_queue_ioctls};

	for (unsigned i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct fake_ioctl *entry = tables[i]; entry->request; entry++)
			if (entry->request == request)
				return entry->serve(file, arg);
	return -ENOTTY;
}

static void reset(unsigned slot)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = fake.object[i];

		if (!o || o->file->slot != slot)
			continue;
		o->lost = true;
		for (uint32_t g = 0; g < DRM_TXDA_GROUP_SLOTS; g++)
			fake_dissolve(o->group[g], g);
	}
	fake.resets[fake.chip[slot]]++;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct file *file;
	int r;

	pthread_mutex_lock(&fake_lock);
	count(request);
	if (fake_drm.reset_at && !--fake_drm.reset_at)
		reset(0);
	file = fake_file(fd);
	check(file);
	if (fake.gone[file->chip]) {
		r = -ENODEV;
	} else if (fails(request)) {
		r = fake_drm.fail_error;
		fake_drm.fail_error = 0;
		if (takes_away(request, arg))
			serve(file, request, arg);
	} else {
		r = serve(file, request, arg);
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

static void describe_node(unsigned slot, struct txda__node *node)
{
	memset(node, 0, sizeof(*node));
	snprintf(node->node, sizeof(node->node), "/fake/accel%u", slot);
	snprintf(node->bus, sizeof(node->bus), "0000:0%u:00.0", slot + 1);
	snprintf(node->serial, sizeof(node->serial), "FAKE-SERIAL-%03u!", slot);
	if (fake_drm.device)
		snprintf(node->device, sizeof(node->device), "%s", fake_drm.device);
	node->card_index = slot;
	node->incarnation = 1000 + fake.chip[slot];
}

static int fake_nodes(struct txda__node *ret, unsigned max)
{
	unsigned n = 0;

	for (unsigned slot = 0; slot < fake.n_slots; slot++)
		if (fake.there[slot] && n < max)
			describe_node(slot, &ret[n++]);
	return (int)n;
}

static bool fake_exists(const char *node)
{
	return !strncmp(node, "/fake/", 6);
}

static int fake_open(const char *node)
{
	unsigned slot = 0, i = 0;

	if (fake_drm.open_error)
		return fake_drm.open_error;
	check(sscanf(node, "/fake/accel%u", &slot) == 1 && slot < fake.n_slots);
	pthread_mutex_lock(&fake_lock);
	while (i < MAX_FILES && fake.file[i].fd >= 0 && fcntl(fake.file[i].fd, F_GETFD) >= 0)
		i++;
	check(i < MAX_FILES);
	fake.file[i] = (struct file){.fd = fcntl(fake.memory, F_DUPFD_CLOEXEC, 3),
				     .slot = slot,
				     .chip = fake.chip[slot]};
	pthread_mutex_unlock(&fake_lock);
	return fake.file[i].fd;
}

static int fake_listen(struct txda__listener **ret_listener)
{
	struct txda__node node[FAKE_CHIPS];
	int n = fake_nodes(node, FAKE_CHIPS);
	int r = txda__listener_blank(node, (unsigned)n, ret_listener);

	if (r >= 0)
		fake.listener = *ret_listener;
	return r;
}

static const struct txda__drm_kernel kernel = {
	.nodes = fake_nodes,
	.exists = fake_exists,
	.open = fake_open,
	.ioctl = fake_ioctl,
	.listen = fake_listen,
};

void fake_drm_start(unsigned chips)
{
	struct cm_options options = {
		.chips = MODEL_CHIPS, .mem_bytes = FAKE_CHIP_BYTES, .cores = 1};
	pthread_condattr_t attr;

	memset(&fake, 0, sizeof(fake));
	memset(&fake_drm, 0, sizeof(fake_drm));
	fake_drm.version_major = DRM_TXDA_MAJOR;
	for (unsigned i = 0; i < MAX_FILES; i++)
		fake.file[i].fd = -1;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fake_word_changed, &attr);
	pthread_condattr_destroy(&attr);
	check(!cm_machine_new(&options, &fake.machine));
	fake.memory = memfd_create("fake", MFD_CLOEXEC);
	check(fake.memory >= 0 && !ftruncate(fake.memory, 1ll << 40));
	fake.n_slots = chips;
	for (; fake.n_chips < chips; fake.n_chips++) {
		fake.chip[fake.n_chips] = fake.n_chips;
		fake.there[fake.n_chips] = true;
	}
	txda__drm_kernel = &kernel;
}

void fake_drm_end(void)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = fake.object[i];

		if (!o)
			continue;
		/* With its chip, or its file, everything of a client goes. */
		if (!fake.gone[o->file->chip])
			fprintf(stderr, "left: kind %d, id %u of slot %u\n", o->kind, o->id,
				o->file->slot);
		check(fake.gone[o->file->chip]);
	}
	for (unsigned pass = SYNCOBJ; pass > FREE; pass--)
		for (unsigned i = 0; i < MAX_OBJECTS; i++)
			if (fake.object[i] && fake.object[i]->kind == (pass == SYNCOBJ ? QUEUE
								       : pass == QUEUE ? SYNCOBJ
										       : pass))
				fake_drop(fake.object[i]);
	for (unsigned i = 0; i < MAX_FILES; i++)
		check(fake.file[i].fd < 0 || fcntl(fake.file[i].fd, F_GETFD) < 0);
	fake_reap();
	for (unsigned i = 0; i < MAX_FILES; i++)
		check(!fake.dmabuf[i].buffer);
	cm_machine_free(fake.machine);
	close(fake.memory);
	pthread_cond_destroy(&fake_word_changed);
	txda__drm_kernel = &txda__drm_kernel_real;
}

void fake_drm_tell(const struct txda__node_event *event)
{
	txda__listener_push(fake.listener, event);
}

void fake_drm_unplug(unsigned slot)
{
	struct txda__node_event event = {.kind = TXDA_EVENT_DEVICE_REMOVED, .time_ns = 1};
	char spec[40];

	describe_node(slot, &event.node);
	snprintf(event.text, sizeof(event.text), "%s is gone", event.node.node);
	snprintf(spec, sizeof(spec), "lost:chip=%u", fake.chip[slot]);
	pthread_mutex_lock(&fake_lock);
	fake.gone[fake.chip[slot]] = true;
	fake.there[slot] = false;
	pthread_mutex_unlock(&fake_lock);
	fake_drm_inject(spec);
	pthread_mutex_lock(&fake_word_lock);
	fake_wake();
	pthread_mutex_unlock(&fake_word_lock);
	if (fake.listener)
		fake_drm_tell(&event);
}

void fake_drm_reset(unsigned slot)
{
	pthread_mutex_lock(&fake_lock);
	reset(slot);
	pthread_mutex_unlock(&fake_lock);
}

void fake_drm_plug(unsigned slot)
{
	struct txda__node_event event = {.kind = TXDA_EVENT_DEVICE_ADDED, .time_ns = 1};

	check(fake.n_chips < MODEL_CHIPS);
	pthread_mutex_lock(&fake_lock);
	if (slot >= fake.n_slots)
		fake.n_slots = slot + 1;
	fake.chip[slot] = fake.n_chips++;
	fake.there[slot] = true;
	pthread_mutex_unlock(&fake_lock);
	describe_node(slot, &event.node);
	snprintf(event.text, sizeof(event.text), "%s was added", event.node.node);
	if (fake.listener)
		fake_drm_tell(&event);
}

void fake_drm_inject(const char *spec)
{
	check(!cm_inject(fake.machine, spec));
}

unsigned long fake_drm_calls(unsigned long request)
{
	unsigned long n = request ? 0 : fake.n_calls;

	pthread_mutex_lock(&fake_lock);
	for (unsigned i = 0; request && i < ARRAY_SIZE(fake.calls); i++)
		if (fake.calls[i].request == request)
			n = fake.calls[i].n;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

unsigned fake_drm_handles(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&fake_lock);
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		n += fake.object[i] && fake.object[i]->kind == HANDLE;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
