/**
 * Publishes an alarm when a value exceeds its threshold, and an all-clear when it does not. A trigger calls it with the
 * value and the time of each record; the grant named "alarms" is the channel that it publishes to.
 */

// @ts-ignore: decorator
@external("skein", "publish")
declare function publish(topic: usize, topicBytes: usize, payload: usize, payloadBytes: usize): i32

const THRESHOLD: f64 = 80.0

/** 1: an alarm was published, 0: all clear was. Anything else is the code of a refusal, which ends the run. */
export function check(value: f64, time: f64): i32 {
  const isAlarm = value > THRESHOLD
  const topic = String.UTF8.encode('alarms')
  const payload = String.UTF8.encode(
    `[{"n":"alarm","t":${time.toString()},"vb":${isAlarm ? 'true' : 'false'}},` +
      `{"n":"value","t":${time.toString()},"v":${value.toString()}}]`,
  )
  const code = publish(
    changetype<usize>(topic),
    topic.byteLength,
    changetype<usize>(payload),
    payload.byteLength,
  )
  if (code != 0) unreachable()
  return isAlarm ? 1 : 0
}
