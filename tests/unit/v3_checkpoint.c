// SPDX-License-Identifier: MIT
#include "v3_checkpoint.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYER "model.layers.2." /* of the fixture, the one that becomes both */

struct source {
	char *data;
	uint64_t header; /* bytes of the JSON */
	cJSON *tensors;
};

/* What is being written: the header so far and the data behind it. */
struct output {
	cJSON *tensors;
	uint16_t *data;
	size_t n, room;
};

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "v3_checkpoint: %s\n", what);
	exit(1);
}

static char *read_file(const char *dir, const char *name)
{
	char path[512], *data;
	long bytes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < 8)
		die(path);
	rewind(f);
	data = malloc((size_t)bytes + 1);
	if (!data || fread(data, 1, (size_t)bytes, f) != (size_t)bytes)
		die(path);
	data[bytes] = '\0';
	fclose(f);
	return data;
}

static float from_bf16(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Adds a tensor of [rows, cols] (cols 0: [rows]); its elements are to be written. */
static uint16_t *add(struct output *o, const char *name, unsigned rows, unsigned cols)
{
	cJSON *tensor = cJSON_AddObjectToObject(o->tensors, name), *array;
	size_t n = (size_t)rows * (cols ? cols : 1);

	if (o->n + n > o->room)
		die("more data than room");
	cJSON_AddStringToObject(tensor, "dtype", "BF16");
	array = cJSON_AddArrayToObject(tensor, "shape");
	cJSON_AddItemToArray(array, cJSON_CreateNumber(rows));
	if (cols)
		cJSON_AddItemToArray(array, cJSON_CreateNumber(cols));
	array = cJSON_AddArrayToObject(tensor, "data_offsets");
	cJSON_AddItemToArray(array, cJSON_CreateNumber((double)(2 * o->n)));
	cJSON_AddItemToArray(array, cJSON_CreateNumber((double)(2 * (o->n + n))));
	o->n += n;
	return o->data + o->n - n;
}

static unsigned shape_of(const cJSON *tensor, int i)
{
	const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(tensor, "shape"), i);

	return item ? (unsigned)item->valueint : 0;
}

/* Copies the source's tensor @from as @to. */
static uint16_t *copy(struct output *o, const struct source *s, const char *from, const char *to)
{
	const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(s->tensors, from);
	unsigned rows = shape_of(tensor, 0), cols = shape_of(tensor, 1);
	size_t at;
	uint16_t *data;

	if (!tensor)
		die(from);
	at = (size_t)cJSON_GetArrayItem(cJSON_GetObjectItem(tensor, "data_offsets"), 0)->valueint;
	data = add(o, to, rows, cols);
	memcpy(data, s->data + 8 + s->header + at, 2 * (size_t)rows * (cols ? cols : 1));
	return data;
}

static void copy_layer(struct output *o, const struct source *s, unsigned to)
{
	const cJSON *tensor;
	char name[256];

	cJSON_ArrayForEach(tensor, s->tensors) {
		if (strncmp(tensor->string, LAYER, strlen(LAYER)))
			continue;
		snprintf(name, sizeof(name), "model.layers.%u.%s", to,
			 tensor->string + strlen(LAYER));
		copy(o, s, tensor->string, name);
	}
}

/* Makes the root of the mean square of each row 1. */
static void scale_rows(uint16_t *data, unsigned rows, unsigned cols)
{
	for (unsigned r = 0; r < rows; r++, data += cols) {
		double square = 0;

		for (unsigned c = 0; c < cols; c++)
			square += (double)from_bf16(data[c]) * (double)from_bf16(data[c]);
		for (unsigned c = 0; c < cols; c++)
			data[c] = to_bf16((float)(from_bf16(data[c]) / sqrt(square / cols)));
	}
}

static void fill(uint16_t *data, unsigned n, unsigned step, float value)
{
	for (unsigned i = 0; i < n; i++)
		data[(size_t)i * step] = to_bf16(value);
}

static void write_tensors(const struct output *o, const char *dir)
{
	char path[512], *text = cJSON_PrintUnformatted(o->tensors);
	uint64_t bytes = strlen(text);
	FILE *f;

	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	f = fopen(path, "wb");
	if (!f || fwrite(&bytes, sizeof(bytes), 1, f) != 1 || fwrite(text, bytes, 1, f) != 1 ||
	    fwrite(o->data, 2, o->n, f) != o->n || fclose(f))
		die(path);
	free(text);
}

static void set(cJSON *config, const char *key, int value)
{
	cJSON_ReplaceItemInObjectCaseSensitive(config, key, cJSON_CreateNumber(value));
}

static void write_config(const char *fixture, const char *dir)
{
	char *text = read_file(fixture, "config.json"), path[512];
	cJSON *config = cJSON_Parse(text);
	FILE *f;

	set(config, "num_hidden_layers", 1);
	set(config, "first_k_dense_replace", 0);
	set(config, "num_nextn_predict_layers", 1);
	free(text);
	text = cJSON_Print(config);
	snprintf(path, sizeof(path), "%s/config.json", dir);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f))
		die(path);
	free(text);
	cJSON_Delete(config);
}

void v3_checkpoint_make(const char *fixture, const char *dir)
{
	struct source s = {.data = read_file(fixture, "model.safetensors")};
	struct output o = {.tensors = cJSON_CreateObject(), .room = 1u << 20};
	const cJSON *embed;
	unsigned vocab, hidden;

	memcpy(&s.header, s.data, 8);
	s.tensors = cJSON_ParseWithLength(s.data + 8, s.header);
	embed = cJSON_GetObjectItemCaseSensitive(s.tensors, "model.embed_tokens.weight");
	vocab = shape_of(embed, 0);
	hidden = shape_of(embed, 1);
	o.data = calloc(o.room, sizeof(*o.data));
	if (!vocab || !hidden || !o.data || (mkdir(dir, 0755) && access(dir, W_OK)))
		die(dir);
	scale_rows(copy(&o, &s, "model.embed_tokens.weight", "model.embed_tokens.weight"), vocab,
		   hidden);
	copy(&o, &s, "lm_head.weight", "lm_head.weight");
	copy(&o, &s, "model.norm.weight", "model.norm.weight");
	copy_layer(&o, &s, 0);
	copy_layer(&o, &s, 1);
	copy(&o, &s, "model.norm.weight", "model.layers.1.shared_head.norm.weight");
	copy(&o, &s, "lm_head.weight", "model.layers.1.shared_head.head.weight");
	fill(add(&o, "model.layers.1.enorm.weight", hidden, 0), hidden, 1, 1);
	fill(add(&o, "model.layers.1.hnorm.weight", hidden, 0), hidden, 1, 1);
	fill(add(&o, "model.layers.1.eh_proj.weight", hidden, 2 * hidden), hidden, 2 * hidden + 1,
	     1);
	write_tensors(&o, dir);
	write_config(fixture, dir);
	cJSON_Delete(s.tensors);
	cJSON_Delete(o.tensors);
	free(s.data);
	free(o.data);
}
