/** The message that an HTTP request brings. */
import type { MessageAccess } from '#api/devices/index.ts'
import { OCTET_STREAM, parseContent } from '#api/messages/index.ts'
import type { IncomingMessage } from '#api/messages/index.ts'

/** The message in a body. What is wrong with the body comes before what is wrong with the channel, which `access` throws. */
export function readMessage(
  contentType: string | undefined,
  body: Buffer,
  subtopic: string,
  access: () => MessageAccess,
): IncomingMessage {
  const receivedAtSeconds = Date.now() / 1000
  const content = parseContent(contentType, body, { subtopic, receivedAtSeconds })
  const original = { contentType: contentType ?? OCTET_STREAM, body }
  return { access: access(), subtopic, protocol: 'http', receivedAtSeconds, content, original }
}
