/** Publishes messages and wills of clients. */
import type { ChannelAccess, MessageGate } from '#api/devices/index.ts'
import type { IncomingMessage, Messages, Sniffed, StoredWill } from '#api/messages/index.ts'
import { JSON_TYPE, SENML_JSON, sniff } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { isTracing } from '#core/tracing/index.ts'
import { envelopeOf, traceparentOf } from '../envelope.ts'
import type { BackendHost, Publication } from '../backend.ts'
import { parseTopicName } from './topics.ts'

export type StoringDeps = { gate: MessageGate; messages: Messages; logger: Logger; host: BackendHost }

export type Storing = {
  /** Resolves when the message is stored. */
  publish(publication: Publication): Promise<void>
  sendWill(will: StoredWill, clientKey: number): Promise<void>
}

/** Content without records. */
const NOTHING: Sniffed = { content: { kind: 'records', records: [] }, fault: undefined }

/** A message to store; `fault`: see `Sniffed`. */
type Incoming = { message: IncomingMessage; fault: string | undefined }

export function createStoring({ gate, messages, logger, host }: StoringDeps): Storing {
  function publish(publication: Publication): Promise<void> {
    const { target: to, payload, qos, retain, properties, session, packetId } = publication
    const access = to.access as ChannelAccess
    const sender = session?.isSenderKept === true ? session.key : undefined
    const envelope = envelopeOf({ qos, retain, properties }, sender, Date.now())
    const message = incoming(access, to.subtopic, payload, {
      ...(envelope === undefined ? {} : { envelope }),
      ...(isTracing() ? { traceparent: traceparentOf(properties) } : {}),
      ...(retain ? { isRetained: true } : {}),
      ...(qos === 2 && session !== undefined && session.isPersistent
        ? { receipt: { sessionKey: session.key, epoch: session.epoch, packetId } }
        : {}),
    })
    return message.fault === undefined ? messages.publish(message.message) : publishOrReport(message)
  }

  /** After the message is stored, the fault is recorded for its sender. */
  async function publishOrReport({ message, fault }: Incoming): Promise<void> {
    const { publisherKey } = message.access
    await messages.publish(message)
    if (fault !== undefined && publisherKey !== null) messages.presence.unparsed(publisherKey, fault)
  }

  /** A will is authorized again like a publish (contract section 7.3); one that is no longer allowed is dropped. */
  async function sendWill(will: StoredWill, clientKey: number): Promise<void> {
    try {
      const { path, subtopic } = parseTopicName(will.topic)
      const access = await gate.authorize({ kind: 'device', clientKey }, path, 'publish')
      const { envelope, isRetained } = will
      await publishOrReport(
        incoming(access, subtopic, will.payload, {
          ...(envelope === undefined ? {} : { envelope }),
          ...(isRetained ? { isRetained: true } : {}),
        }),
      )
    } catch (error) {
      const kind = kindOf(error)
      if (kind === 'unavailable' || kind === 'timeout') throw error
      host.dropped(undefined, 'will')
      if (kind === 'internal') logger.warn({ err: error }, 'refused to publish a will')
    }
  }

  return { publish, sendWill }
}

function incoming(access: ChannelAccess, subtopic: string, payload: Buffer, more: Partial<IncomingMessage>): Incoming {
  const receivedAtSeconds = Date.now() / 1000
  // A copy, so that one message does not retain a whole chunk.
  const body = Buffer.from(payload)
  // A message that only clears a retained one is not stored.
  const isClearing = more.isRetained === true && body.length === 0
  const { content, fault } = isClearing ? NOTHING : sniff(body, { subtopic, receivedAtSeconds })
  const contentType =
    content.kind === 'records' ? SENML_JSON : content.kind === 'documents' ? JSON_TYPE : content.contentType
  const original = { contentType, body }
  return {
    message: { access, subtopic, protocol: 'mqtt', receivedAtSeconds, content, original, ...more },
    fault,
  }
}
