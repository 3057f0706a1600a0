/** What clients publish, and their wills, on the way into the log of messages. */
import type { MessageAccess, MessageGate } from '#api/devices/index.ts'
import type { IncomingMessage, Messages, Sniffed, StoredWill } from '#api/messages/index.ts'
import { JSON_TYPE, SENML_JSON, sniff } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { envelopeOf } from '../envelope.ts'
import type { ExchangeHost, Publication } from '../exchange.ts'
import { parseTopicName } from './topics.ts'

export type StoringDeps = { gate: MessageGate; messages: Messages; logger: Logger; host: ExchangeHost }

export type Storing = {
  /** Resolves when the message is stored. */
  publish(publication: Publication): Promise<void>
  sendWill(will: StoredWill, clientKey: number): Promise<void>
}

/** Of no record. */
const NOTHING: Sniffed = { content: { kind: 'records', records: [] }, fault: undefined }

/** A message on its way into the log; `fault`: see `Sniffed`. */
type Incoming = { message: IncomingMessage; fault: string | undefined }

export function createStoring({ gate, messages, logger, host }: StoringDeps): Storing {
  function publish(publication: Publication): Promise<void> {
    const { target: to, payload, qos, retain, properties, session, packetId } = publication
    const access = to.access as MessageAccess
    const sender = session?.outlet?.version === 5 && session.key !== 0 ? session.key : undefined
    const envelope = envelopeOf({ qos, retain, properties }, sender, Date.now())
    const message = incoming(access, to.subtopic, payload, {
      ...(envelope === undefined ? {} : { envelope }),
      ...(retain ? { isRetained: true } : {}),
      ...(qos === 2 && session !== undefined && session.isPersistent
        ? { receipt: { sessionKey: session.key, epoch: session.epoch, packetId } }
        : {}),
    })
    return message.fault === undefined ? messages.publish(message.message) : told(message)
  }

  /** The sender is told of what it meant otherwise than it is stored, once it is. */
  async function told({ message, fault }: Incoming): Promise<void> {
    const { publisherKey } = message.access
    await messages.publish(message)
    if (fault !== undefined && publisherKey !== null) messages.presence.unparsed(publisherKey, fault)
  }

  /** It is authorised like a publish once more (contract section 7.3); a will that is not allowed any more is dropped. */
  async function sendWill(will: StoredWill, clientKey: number): Promise<void> {
    try {
      const { path, subtopic } = parseTopicName(will.topic)
      const access = await gate.authorize({ kind: 'device', clientKey }, path, 'publish')
      const { envelope, isRetained } = will
      await told(
        incoming(access, subtopic, will.payload, {
          ...(envelope === undefined ? {} : { envelope }),
          ...(isRetained ? { isRetained: true } : {}),
        }),
      )
    } catch (error) {
      const kind = kindOf(error)
      if (kind === 'unavailable' || kind === 'timeout') throw error
      host.dropped(undefined, 'will')
      if (kind === 'internal') logger.warn({ err: error }, 'a will was not sent')
    }
  }

  return { publish, sendWill }
}

function incoming(access: MessageAccess, subtopic: string, payload: Buffer, more: Partial<IncomingMessage>): Incoming {
  const receivedAtSeconds = Date.now() / 1000
  // The bytes of a chunk are not kept for the sake of one message.
  const body = Buffer.from(payload)
  // What only clears what is retained is stored nowhere.
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
