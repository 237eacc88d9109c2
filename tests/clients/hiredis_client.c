/*
 * hiredis against a server: strings, expiry, scans, pipelines, binary keys. Built and run by hiredis.py.
 *
 *   hiredis_client PORT
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static redisContext *context;

static redisReply *reply_to(const char *format, const void *a, size_t a_size, const void *b,
                            size_t b_size)
{
    redisReply *reply = redisCommand(context, format, a, a_size, b, b_size);
    CHECK(reply != NULL);
    return reply;
}

static void strings(void)
{
    redisReply *reply = redisCommand(context, "SET %s %s", "hiredis", "value");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0);
    freeReplyObject(reply);
    reply = redisCommand(context, "GET hiredis");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "value") == 0);
    freeReplyObject(reply);
    reply = redisCommand(context, "GET nosuch");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_NIL);
    freeReplyObject(reply);
    reply = redisCommand(context, "INCRBY counter 41");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == 41);
    freeReplyObject(reply);
    reply = redisCommand(context, "INCR hiredis");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    reply = redisCommand(context, "MGET hiredis nosuch counter");
    CHECK(reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3);
    CHECK(reply->element[1]->type == REDIS_REPLY_NIL && strcmp(reply->element[2]->str, "41") == 0);
    freeReplyObject(reply);
}

static void binary(void)
{
    static const char key[] = "k\0\r\n\xff", value[] = "\xf9\0v";
    freeReplyObject(reply_to("SET %b %b", key, sizeof(key), value, sizeof(value)));
    redisReply *reply = redisCommand(context, "GET %b", key, sizeof(key));
    CHECK(reply != NULL && reply->len == sizeof(value));
    CHECK(memcmp(reply->str, value, sizeof(value)) == 0);
    freeReplyObject(reply);
}

static void pipeline(void)
{
    enum { COUNT = 1000 };
    for (int i = 0; i < COUNT; i++)
        CHECK(redisAppendCommand(context, "SET pipe:%d %d", i, i) == REDIS_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(redisAppendCommand(context, "GET pipe:%d", i) == REDIS_OK);
    for (int i = 0; i < 2 * COUNT; i++) {
        redisReply *reply;
        CHECK(redisGetReply(context, (void **)&reply) == REDIS_OK);
        CHECK(i < COUNT || atoi(reply->str) == i - COUNT);
        freeReplyObject(reply);
    }
}

static void scan(void)
{
    char cursor[32] = "0";
    size_t found = 0;
    do {
        redisReply *reply = redisCommand(context, "SCAN %s MATCH pipe:* COUNT 50", cursor);
        CHECK(reply != NULL && reply->elements == 2);
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        found += reply->element[1]->elements;
        freeReplyObject(reply);
    } while (strcmp(cursor, "0") != 0);
    CHECK(found == 1000);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    context = redisConnect("127.0.0.1", atoi(argv[1]));
    CHECK(context != NULL && context->err == 0);
    strings();
    binary();
    pipeline();
    scan();
    redisFree(context);
    printf("hiredis: ok\n");
    return 0;
}
