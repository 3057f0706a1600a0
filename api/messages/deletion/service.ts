/** Deletion of stored messages: authorization, limits and the journal (contract decision 54). */
import type { AccessPolicy, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { parseFilter } from '../reader/filter.ts'
import { countMessages } from './count.ts'
import type { DeletionQuery } from './schema.ts'
import { deleteMessages, snapshotNow } from './steps.ts'

/** Each holds a connection of the pool most of the time. */
const MAX_DELETIONS = 4
const MAX_DELETIONS_PER_DOMAIN = 2
const RETRY_SECONDS = 5

export class MessageDeletion {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #journal: Journal
  readonly #slots = new Slots({
    what: 'deletions of messages',
    max: MAX_DELETIONS,
    share: MAX_DELETIONS_PER_DOMAIN,
    retryAfterSeconds: RETRY_SECONDS,
  })

  constructor(deps: { database: Database; access: AccessPolicy; journal: Journal }) {
    this.#database = deps.database
    this.#access = deps.access
    this.#journal = deps.journal
  }

  /**
   * Deletes the messages of a channel in a time range, of a publisher, or both. Messages acknowledged before the call are deleted when
   * it resolves; later ones are kept. Throws `malformed` without `from`, `to` and `publisher`; `forbidden`
   * and `not_found` (decision 45); `rate_limited` and `unavailable` when too many deletions of the domain, or of all, are running.
   */
  async remove(caller: UserPrincipal, domainId: string, channelId: string, query: DeletionQuery): Promise<void> {
    const { publisher: publisherId, ...range } = query
    const filter = parseFilter({ ...range, offset: 0, limit: 1, format: '' })
    const { fromSeconds, toSeconds } = filter
    if (fromSeconds === undefined && toSeconds === undefined && publisherId === undefined)
      throw new ServiceError('malformed', 'one of from, to or publisher is required')
    const { domain, entity } = await this.#access.locate(caller, domainId, 'channel', channelId)
    await domain.requireOn(entity, 'delete')
    const target = { channelKey: entity.key, fromSeconds, toSeconds, publisherId }
    const release = await this.#slots.take(domain.domainId)
    try {
      // Recorded before the deletion: an interrupted deletion has deleted something.
      const snapshot = await this.#journal.change(caller, async (tx, record) => {
        record({
          operation: 'channel.remove_messages',
          domainKey: domain.domainKey,
          entityKeys: [entity.key],
          attributes: {
            id: entity.id,
            ...(fromSeconds === undefined ? {} : { from: fromSeconds }),
            ...(toSeconds === undefined ? {} : { to: toSeconds }),
            ...(publisherId === undefined ? {} : { publisher: publisherId }),
          },
          later: () => countMessages(this.#database, target, filter),
        })
        return await snapshotNow(tx)
      })
      await deleteMessages(this.#database, target, snapshot)
    } finally {
      release()
    }
  }
}
