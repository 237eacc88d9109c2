/*
 * buffers.c - input, output and window buffers, pooled per thread: an idle client has none, and a busy
 * server allocates none.
 */
#include <stdlib.h>

#include "server/server_int.h"

struct input *input_take(struct server_thread *thread)
{
    struct list *link = list_pop_front(&thread->inputs);
    if (link != NULL)
        return container_of(link, struct input, link);
    struct input *input = calloc(1, sizeof(*input));
    if (input == NULL || bytes_init(&input->bytes, INPUT_BYTES) != 0) {
        free(input);
        return NULL;
    }
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
    if (input->bytes.capacity > INPUT_BYTES) {
        input_free(input);
        return;
    }
    bytes_taken(&input->bytes, bytes_used(&input->bytes));
    input->bytes.head = input->bytes.tail = 0;
    struct resp_word *words = input->parser.words;
    size_t capacity = input->parser.word_capacity;
    resp_init(&input->parser);
    input->parser.words = words;
    input->parser.word_capacity = capacity;
    list_push_front(&thread->inputs, &input->link);
}

struct output *output_take(struct server_thread *thread)
{
    struct list *link = list_pop_front(&thread->outputs);
    if (link != NULL)
        return container_of(link, struct output, link);
    struct output *output = calloc(1, sizeof(*output));
    if (output == NULL || bytes_init(&output->reply.bytes, OUTPUT_BYTES) != 0) {
        free(output);
        return NULL;
    }
    list_init(&output->link);
    output->reply.limit = thread->server->options.output_limit_bytes;
    return output;
}

static void output_free(struct output *output)
{
    bytes_fini(&output->reply.bytes);
    free(output);
}

void output_give(struct server_thread *thread, struct output *output)
{
    if (output->reply.bytes.capacity > OUTPUT_FLUSH_BYTES * 2) {
        output_free(output);
        return;
    }
    output->reply.bytes.head = output->reply.bytes.tail = 0;
    output->reply.overflow = false;
    list_push_front(&thread->outputs, &output->link);
}

struct window *window_take(struct server_thread *thread)
{
    struct list *link = list_pop_front(&thread->windows);
    if (link != NULL)
        return container_of(link, struct window, link);
    struct window *window = calloc(1, sizeof(*window));
    if (window == NULL)
        return NULL;
    list_init(&window->link);
    for (unsigned i = 0; i < WINDOW_WIDTH; i++) {
        window->slots[i].window = window;
        window->slots[i].reply.limit = thread->server->options.output_limit_bytes;
    }
    return window;
}

static void window_free(struct window *window)
{
    for (unsigned i = 0; i < WINDOW_WIDTH; i++)
        bytes_fini(&window->slots[i].reply.bytes);
    free(window);
}

void window_give(struct server_thread *thread, struct window *window)
{
    window->count = 0;
    list_push_front(&thread->windows, &window->link);
}

void buffers_free(struct server_thread *thread)
{
    struct list *link;
    while ((link = list_pop_front(&thread->inputs)) != NULL)
        input_free(container_of(link, struct input, link));
    while ((link = list_pop_front(&thread->outputs)) != NULL)
        output_free(container_of(link, struct output, link));
    while ((link = list_pop_front(&thread->windows)) != NULL)
        window_free(container_of(link, struct window, link));
}
