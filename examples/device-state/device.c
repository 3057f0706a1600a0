/*
 * A device that becomes what it should be: it applies the difference that it receives, and reports what it is then.
 *
 *     cc -o device device.c -lmosquitto -lcjson
 *     SKEIN_MQTT_HOST=127.0.0.1 SKEIN_DOMAIN=… SKEIN_CLIENT=… SKEIN_SECRET=… ./device
 *
 * It requires libmosquitto and cJSON (Debian: libmosquitto-dev, libcjson-dev). cJSON has no integers: those above 2^53 are rounded.
 */
#include <cjson/cJSON.h>
#include <mosquitto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char desired[256], reported[256];
static cJSON *state;
static double newest;

/* JSON merge patch (RFC 7396): null removes a field, objects are merged, everything else replaces. */
static int merge(cJSON *target, const cJSON *patch)
{
    const cJSON *change;
    cJSON_ArrayForEach(change, patch)
    {
        cJSON *before = cJSON_GetObjectItemCaseSensitive(target, change->string), *after;
        if (cJSON_IsNull(change)) {
            cJSON_DeleteItemFromObjectCaseSensitive(target, change->string);
            continue;
        }
        if (cJSON_IsObject(change) && cJSON_IsObject(before)) {
            if (!merge(before, change)) return 0;
            continue;
        }
        after = cJSON_IsObject(change) ? cJSON_CreateObject() : cJSON_Duplicate(change, 1);
        if (after == NULL || (cJSON_IsObject(change) && !merge(after, change))) {
            cJSON_Delete(after);
            return 0;
        }
        /* A device without memory keeps what it was, and receives the difference again when it connects. */
        if (!(before ? cJSON_ReplaceItemInObjectCaseSensitive(target, change->string, after)
                     : cJSON_AddItemToObject(target, change->string, after))) {
            cJSON_Delete(after);
            return 0;
        }
    }
    return 1;
}

static void report(struct mosquitto *client, const cJSON *part)
{
    char *text = cJSON_PrintUnformatted(part);
    int fault = text == NULL ? MOSQ_ERR_NOMEM : mosquitto_publish(client, NULL, reported, (int)strlen(text), text, 1, false);
    if (fault != MOSQ_ERR_SUCCESS) fprintf(stderr, "the report was not sent: %s\n", mosquitto_strerror(fault));
    cJSON_free(text);
}

static void on_connect(struct mosquitto *client, void *context, int code)
{
    (void)context;
    if (code != 0) {
        fprintf(stderr, "refused: %s\n", mosquitto_connack_string(code));
        return;
    }
    mosquitto_subscribe(client, NULL, desired, 1);
    /* Everything that it is, once for each connection. Later reports are what changed. */
    report(client, state);
}

static void on_message(struct mosquitto *client, void *context, const struct mosquitto_message *message)
{
    cJSON *received = cJSON_ParseWithLength(message->payload, (size_t)message->payloadlen);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(received, "version");
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(received, "delta");
    (void)context;
    /* Versions only grow: an older difference was replaced. */
    if (cJSON_IsNumber(version) && cJSON_IsObject(delta) && version->valuedouble > newest && merge(state, delta)) {
        char *text = cJSON_PrintUnformatted(state);
        newest = version->valuedouble;
        if (text != NULL) puts(text);
        fflush(stdout);
        cJSON_free(text);
        report(client, delta);
    }
    cJSON_Delete(received);
}

static const char *required(const char *name)
{
    const char *value = getenv(name);
    if (value != NULL) return value;
    fprintf(stderr, "%s is required\n", name);
    exit(2);
}

int main(void)
{
    const char *domain = required("SKEIN_DOMAIN"), *host = required("SKEIN_MQTT_HOST"), *port = getenv("SKEIN_MQTT_PORT");
    struct mosquitto *client;
    int fault;

    snprintf(desired, sizeof desired, "c/%s/state/desired", domain);
    snprintf(reported, sizeof reported, "c/%s/state/reported", domain);
    state = cJSON_Parse("{\"firmware\":\"1.3\",\"led\":{\"on\":false}}");
    mosquitto_lib_init();
    client = mosquitto_new(NULL, true, NULL);
    if (state == NULL || client == NULL) return 1;
    mosquitto_username_pw_set(client, required("SKEIN_CLIENT"), required("SKEIN_SECRET"));
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_callback_set(client, on_message);
    fault = mosquitto_connect(client, host, port == NULL ? 1883 : atoi(port), 60);
    /* It connects again after each failure, and returns when there is no way on. */
    if (fault == MOSQ_ERR_SUCCESS) fault = mosquitto_loop_forever(client, -1, 1);
    fprintf(stderr, "%s\n", mosquitto_strerror(fault));
    mosquitto_destroy(client);
    mosquitto_lib_cleanup();
    cJSON_Delete(state);
    return fault == MOSQ_ERR_SUCCESS ? 0 : 1;
}
