/** Sessions of a client and retained messages of a channel for operators: listing and deletion. */
import type { AccessPolicy, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { clearRetained, listRetained } from '../retained/retained.ts'
import { parseSubtopic } from '../model/topics.ts'
import { endSessions } from './ending.ts'
import { listSessions } from './listing.ts'
import type { MqttSessions, RetainedPage } from './schema.ts'
import { presentRetained, presentSession } from './schema.ts'

/** The number of identifiers in a record of the journal. */
const MAX_RECORDED = 100

export class SessionsService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #journal: Journal

  constructor(deps: { database: Database; access: AccessPolicy; journal: Journal }) {
    this.#database = deps.database
    this.#access = deps.access
    this.#journal = deps.journal
  }

  /** Requires `read` on the client. Throws `forbidden` and `not_found` (decision 45). */
  async ofClient(caller: UserPrincipal, domainId: string, clientId: string, range: PageRange): Promise<MqttSessions> {
    const { entity } = await this.#access.locate(caller, domainId, 'client', clientId)
    const { total, rows, next } = await listSessions(this.#database.db, entity.key, range)
    const { offset, limit } = range
    return { total, offset, limit, sessions: rows.map(presentSession), next }
  }

  /**
   * Ends one session, or all: closes connections, deletes state, sends wills. Requires `update` on the client. Throws `not_found` for an
   * identifier without a session.
   */
  async end(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    clientIdentifier: string | undefined,
  ): Promise<void> {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'client', clientId)
    await domain.requireOn(entity, 'update')
    await this.#journal.change(caller, async (tx, record) => {
      const ended = await endSessions(tx, record, entity.key, clientIdentifier)
      if (clientIdentifier !== undefined && ended.length === 0)
        throw new ServiceError('not_found', 'the client has no such session')
      record({
        operation: 'client.end_sessions',
        domainKey: domain.domainKey,
        entityKeys: [entity.key],
        attributes: { id: entity.id, client_identifiers: ended.slice(0, MAX_RECORDED), total: ended.length },
      })
    })
  }

  /** Lists retained messages. Requires `subscribe` on the channel, because the list contains message payloads. */
  async retained(caller: UserPrincipal, domainId: string, channelId: string, range: PageRange): Promise<RetainedPage> {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'channel', channelId)
    await domain.requireOn(entity, 'subscribe')
    const { total, messages, next } = await listRetained(this.#database.db, entity.key, range)
    const { offset, limit } = range
    return { total, offset, limit, messages: messages.map((message) => presentRetained(entity.id, message)), next }
  }

  /** Requires `delete` on the channel, like the deletion of messages. Clears one subtopic, or all. Idempotent. */
  async clear(caller: UserPrincipal, domainId: string, channelId: string, subtopic: string | undefined): Promise<void> {
    const { domain, entity } = await this.#access.locate(caller, domainId, 'channel', channelId)
    await domain.requireOn(entity, 'delete')
    const canonical = subtopic === undefined ? undefined : parseSubtopic(subtopic)
    await this.#journal.change(caller, async (tx, record) => {
      await clearRetained(tx, entity.key, canonical)
      record({
        operation: 'channel.clear_retained',
        domainKey: domain.domainKey,
        entityKeys: [entity.key],
        attributes: { id: entity.id, ...(canonical === undefined ? {} : { subtopic: canonical }) },
      })
    })
  }
}
