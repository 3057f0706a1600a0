/** The payload of a notification, for mails and webhooks: of a message, or of what a rule says. */
import type { LiveMessage } from '#api/messages/index.ts'
import { formatTime } from '#core/time.ts'

/** Longer payloads are truncated. The reader API returns the complete message. */
const MAX_PAYLOAD_BYTES = 16_384

export type NotificationPayload = Readonly<Record<string, string | boolean>>

export function payloadOf(message: LiveMessage): NotificationPayload {
  const bytes = message.payload.subarray(0, MAX_PAYLOAD_BYTES)
  const text = bytes.toString('utf8')
  const isText = Buffer.from(text, 'utf8').equals(bytes) && !text.includes('\0')
  return {
    channel: message.channelId,
    subtopic: message.subtopic,
    publisher: message.publisherId,
    protocol: message.protocol,
    created: formatTime(new Date(message.receivedAtSeconds * 1000)),
    content_type: message.contentType,
    ...(isText ? { payload: text } : { payload: bytes.toString('base64'), encoding: 'base64' }),
    ...(message.payload.length > MAX_PAYLOAD_BYTES ? { is_cut: true } : {}),
  }
}

/** Returns the mail of a notification. */
export function mailOf(contact: string, topic: string, payload: NotificationPayload) {
  const text = (name: string) => String(payload[name] ?? '')
  return {
    to: contact,
    subject: `Message on ${topic}`,
    text: [
      `Channel: ${text('channel')}`,
      ...(text('subtopic') === '' ? [] : [`Subtopic: ${text('subtopic')}`]),
      ...(text('publisher') === '' ? [] : [`Publisher: ${text('publisher')}`]),
      `Received: ${text('created')} over ${text('protocol')}`,
      `Content type: ${text('content_type')}${payload['encoding'] === undefined ? '' : ', in base64'}`,
      '',
      text('payload'),
      '',
    ].join('\n'),
  }
}

/** A mail of a rule has its texts since it was recorded. */
export const mailOfRule = (contact: string, payload: NotificationPayload) => ({
  to: contact,
  subject: String(payload['subject'] ?? ''),
  text: String(payload['text'] ?? ''),
})

/** The body of a webhook request of a rule. That of a template is what the template says, and nothing more. */
export function bodyOfRule(id: string, payload: NotificationPayload): string {
  const body = String(payload['body'] ?? '')
  return payload['is_template'] === true ? body : `{"id":${JSON.stringify(id)},${body.slice(1)}`
}
