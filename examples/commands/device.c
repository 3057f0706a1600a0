/*
 * A device that carries out commands over MQTT: `add` and `reboot`; it rejects others.
 *
 *     cc -o device device.c -lmosquitto -lcjson
 *     SKEIN_MQTT_HOST=127.0.0.1 SKEIN_MQTT_PORT=1883 SKEIN_DOMAIN=… SKEIN_CLIENT=… SKEIN_SECRET=… ./device
 *
 * It requires libmosquitto and cJSON (Debian: libmosquitto-dev, libcjson-dev).
 */
#include <cjson/cJSON.h>
#include <mosquitto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The id of a command is a UUID. */
#define ID_CHARS 36
#define KEPT 100

static char requests[256], results[256];
/*
 * A command is delivered again until its answer has arrived. A device has at most 100 open commands, so the last 100 answers are enough. One
 * that must not do a command twice stores this on its disk.
 */
static struct answer {
    char id[ID_CHARS + 1];
    char *text;
} answers[KEPT];
static int next;

static cJSON *answer_of(const char *status, const char *reason)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddStringToObject(answer, "status", status);
    if (reason != NULL) cJSON_AddStringToObject(answer, "reason", reason);
    return answer;
}

static cJSON *carry_out(const char *name, const cJSON *payload)
{
    char reason[128];
    if (strcmp(name, "reboot") == 0) return answer_of("succeeded", NULL);
    if (strcmp(name, "add") == 0) {
        const cJSON *a = cJSON_GetObjectItemCaseSensitive(payload, "a"), *b = cJSON_GetObjectItemCaseSensitive(payload, "b");
        cJSON *answer;
        if (!cJSON_IsNumber(a) || !cJSON_IsNumber(b)) return answer_of("failed", "a and b must be numbers");
        answer = answer_of("succeeded", NULL);
        cJSON_AddNumberToObject(answer, "result", a->valuedouble + b->valuedouble);
        return answer;
    }
    snprintf(reason, sizeof reason, "this device knows no %s", name);
    return answer_of("rejected", reason);
}

/* The answer of this command, which is carried out once. NULL: there is no memory, and the command is delivered again. */
static const char *answer_to(const char *id, const char *name, const struct mosquitto_message *message)
{
    cJSON *payload, *answer;
    struct answer *place;
    char *text;
    int at;
    for (at = 0; at < KEPT; at++)
        if (strcmp(answers[at].id, id) == 0) return answers[at].text;
    payload = message->payloadlen == 0 ? NULL : cJSON_ParseWithLength(message->payload, (size_t)message->payloadlen);
    answer = carry_out(name, payload);
    text = cJSON_PrintUnformatted(answer);
    cJSON_Delete(answer);
    cJSON_Delete(payload);
    if (text == NULL) return NULL;
    place = &answers[next++ % KEPT];
    cJSON_free(place->text);
    place->text = text;
    snprintf(place->id, sizeof place->id, "%s", id);
    return text;
}

static void on_connect(struct mosquitto *client, void *context, int code)
{
    (void)context;
    if (code != 0) fprintf(stderr, "refused: %s\n", mosquitto_connack_string(code));
    /* What is open comes at once, and each new command later. */
    else mosquitto_subscribe(client, NULL, requests, 1);
}

static void on_message(struct mosquitto *client, void *context, const struct mosquitto_message *message)
{
    char id[ID_CHARS + 1], name[65], topic[sizeof results + ID_CHARS + 1];
    const char *text;
    (void)context;
    /* c/<domain>/commands/requests/<id>/<name> */
    if (sscanf(message->topic, "c/%*[^/]/commands/requests/%36[^/]/%64s", id, name) != 2) return;
    text = answer_to(id, name, message);
    if (text == NULL) return;
    snprintf(topic, sizeof topic, "%s/%s", results, id);
    mosquitto_publish(client, NULL, topic, (int)strlen(text), text, 1, false);
    printf("%s %s\n", name, text);
    fflush(stdout);
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

    snprintf(requests, sizeof requests, "c/%s/commands/requests/+/+", domain);
    snprintf(results, sizeof results, "c/%s/commands/results", domain);
    mosquitto_lib_init();
    /* The session is kept, so that an answer that was not acknowledged is sent again after a reconnection. */
    client = mosquitto_new(required("SKEIN_CLIENT"), false, NULL);
    if (client == NULL) return 1;
    mosquitto_username_pw_set(client, required("SKEIN_CLIENT"), required("SKEIN_SECRET"));
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_callback_set(client, on_message);
    fault = mosquitto_connect(client, host, port == NULL ? 1883 : atoi(port), 60);
    if (fault == MOSQ_ERR_SUCCESS) fault = mosquitto_loop_forever(client, -1, 1);
    fprintf(stderr, "%s\n", mosquitto_strerror(fault));
    mosquitto_destroy(client);
    mosquitto_lib_cleanup();
    return fault == MOSQ_ERR_SUCCESS ? 0 : 1;
}
