/*
 * buffers.c - input, output and pipeline buffers, pooled per thread: an idle client has none, and a
 * busy server allocates none. Clients that have not given the password have small ones of their
 * own.
 */
#include <stdlib.h>

#include "server/net/client.h"

struct input *input_take(struct server_thread *thread, bool stranger)
{
    struct list *link = stranger ? NULL : list_pop_front(&thread->inputs);
    if (link != NULL)
        return container_of(link, struct input, link);
    struct input *input = calloc(1, sizeof(*input));
    size_t bytes = stranger ? STRANGER_READ_BYTES : INPUT_BYTES;
    if (input == NULL || bytes_init(&input->bytes, bytes) != 0) {
        free(input);
        return NULL;
    }
    input->bytes.secret = true;
    list_init(&input->link);
    resp_init(&input->parser);
    return input;
}

static void input_free(struct input *input)
{
    bytes_fini(&input->bytes);
    resp_fini(&input->parser);
    free(input);
}

void input_give(struct server_thread *thread, struct input *input)
{
    if (input->bytes.capacity != INPUT_BYTES) {
        input_free(input);
        return;
    }
    if (bytes_used(&input->bytes) > 0)
        bytes_wipe(&input->bytes); /* half a request, perhaps with a password */
    input->bytes.head = input->bytes.tail = 0;
    struct resp_word *words = input->parser.words;
    size_t capacity = input->parser.word_capacity;
    resp_init(&input->parser);
    input->parser.words = words;
    input->parser.word_capacity = capacity;
    list_push_front(&thread->inputs, &input->link);
}

struct output *output_take(struct server_thread *thread, bool stranger)
{
    struct list *link = stranger ? NULL : list_pop_front(&thread->outputs);
    if (link != NULL)
        return container_of(link, struct output, link);
    struct output *output = calloc(1, sizeof(*output));
    size_t bytes = stranger ? STRANGER_READ_BYTES : OUTPUT_BYTES;
    if (output == NULL || bytes_init(&output->reply.bytes, bytes) != 0) {
        free(output);
        return NULL;
    }
    list_init(&output->link);
    output->reply.limit = thread->server->options.output_limit_bytes;
    output->flush_bytes = stranger ? STRANGER_FLUSH_BYTES : OUTPUT_FLUSH_BYTES;
    return output;
}

/* Replies are no secrets, but for one with the password. */
void output_forget(struct output *output)
{
    if (!output->reply.bytes.secret)
        return;
    bytes_wipe(&output->reply.bytes);
    output->reply.bytes.secret = false;
}

static void output_free(struct output *output)
{
    bytes_fini(&output->reply.bytes);
    free(output);
}

void output_give(struct server_thread *thread, struct output *output)
{
    output_forget(output);
    if (output->reply.bytes.capacity < OUTPUT_BYTES ||
        output->reply.bytes.capacity > OUTPUT_FLUSH_BYTES * 2) {
        output_free(output);
        return;
    }
    output->reply.bytes.head = output->reply.bytes.tail = 0;
    output->reply.overflow = false;
    output->flush_bytes = OUTPUT_FLUSH_BYTES;
    list_push_front(&thread->outputs, &output->link);
}

struct pipeline *pipeline_take(struct server_thread *thread)
{
    struct list *link = list_pop_front(&thread->pipelines);
    if (link != NULL)
        return container_of(link, struct pipeline, link);
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (pipeline == NULL)
        return NULL;
    list_init(&pipeline->link);
    for (unsigned i = 0; i < PIPELINE_WIDTH; i++) {
        pipeline->slots[i].pipeline = pipeline;
        pipeline->slots[i].reply.limit = thread->server->options.output_limit_bytes;
    }
    return pipeline;
}

static void pipeline_free(struct pipeline *pipeline)
{
    for (unsigned i = 0; i < PIPELINE_WIDTH; i++)
        bytes_fini(&pipeline->slots[i].reply.bytes);
    free(pipeline);
}

void pipeline_give(struct server_thread *thread, struct pipeline *pipeline)
{
    pipeline->count = 0;
    list_push_front(&thread->pipelines, &pipeline->link);
}

void buffers_free(struct server_thread *thread)
{
    struct list *link;
    while ((link = list_pop_front(&thread->inputs)) != NULL)
        input_free(container_of(link, struct input, link));
    while ((link = list_pop_front(&thread->outputs)) != NULL)
        output_free(container_of(link, struct output, link));
    while ((link = list_pop_front(&thread->pipelines)) != NULL)
        pipeline_free(container_of(link, struct pipeline, link));
}
