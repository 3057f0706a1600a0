/*
 * The mean of the last ten stored values of a channel. A trigger calls it at each new value; the task reads through its
 * grant and publishes the returned mean with publish_result.
 */
#define IMPORT(name) __attribute__((import_module("skein"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

IMPORT(read) int skein_read(const char *query, int query_length, char *buffer, int capacity);

static const char QUERY[] = "{\"topic\":\"readings\",\"limit\":10}";
static char buffer[64 * 1024];

/* Decimal number as JSON writes it; moves the cursor behind it. */
static double number(const char **cursor, const char *end) {
  const char *at = *cursor;
  double sign = 1, value = 0, scale = 1;
  int exponent = 0, exponent_sign = 1;
  if (at < end && *at == '-') sign = -1, at++;
  for (; at < end && *at >= '0' && *at <= '9'; at++) value = value * 10 + (*at - '0');
  if (at < end && *at == '.')
    for (at++; at < end && *at >= '0' && *at <= '9'; at++) value += (*at - '0') * (scale /= 10);
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < end && (*at == '+' || *at == '-')) exponent_sign = *at++ == '-' ? -1 : 1;
    for (; at < end && *at >= '0' && *at <= '9'; at++) exponent = exponent * 10 + (*at - '0');
    for (; exponent > 0; exponent--) value = exponent_sign > 0 ? value * 10 : value / 10;
  }
  *cursor = at;
  return sign * value;
}

/* The value and time of the record that triggered it are among the stored ones already. */
EXPORT(mean) double mean(double value, double time) {
  (void)time;
  int length = skein_read(QUERY, sizeof QUERY - 1, buffer, sizeof buffer);
  if (length < 0 || length > (int)sizeof buffer) __builtin_trap();
  double sum = 0;
  int count = 0;
  const char *end = buffer + length;
  for (const char *at = buffer; at + 4 < end; at++) {
    if (at[0] != '"' || at[1] != 'v' || at[2] != '"' || at[3] != ':') continue;
    at += 4;
    sum += number(&at, end);
    count++;
  }
  return count == 0 ? value : sum / count;
}
