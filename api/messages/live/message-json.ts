/** A message as streams of JSON deliver it. */
import type { LiveMessage } from './live-message.ts'

/** The text of a message with many followers, made once. */
const texts = new WeakMap<LiveMessage, string>()

export function messageJson(message: LiveMessage): string {
  let text = texts.get(message)
  if (text === undefined) texts.set(message, (text = formatMessage(message)))
  return text
}

/** One line of JSON. A JSON payload is inserted unchanged, so that numbers keep their digits. */
function formatMessage(message: LiveMessage): string {
  const { channelId, subtopic, publisherId, protocol, receivedAtSeconds, contentType, payload, envelope } = message
  const head = JSON.stringify({
    channel: channelId,
    subtopic,
    publisher: publisherId,
    protocol,
    created: receivedAtSeconds,
    content_type: contentType,
    ...(envelope?.run === undefined ? {} : { run_id: envelope.run.id, task_id: envelope.run.task }),
  })
  return `${head.slice(0, -1)},"payload":${jsonOf(contentType, payload) ?? JSON.stringify(payload.toString('base64'))}}`
}

function jsonOf(contentType: string, payload: Buffer): string | undefined {
  if (!/^application\/(?:[a-z.-]+\+)?json$/.test(contentType)) return undefined
  // A line feed would end the line of the event. Between JSON tokens it has no meaning, and strings contain none.
  return payload.toString('utf8').replaceAll(/[\r\n]+/g, ' ')
}
