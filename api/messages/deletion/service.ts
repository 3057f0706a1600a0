/** Who may delete stored messages, and that it is told (contract decision 54). */
import type { AccessPolicy, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { parseFilter } from '../reader/filter.ts'
import type { DeletionQuery } from './schema.ts'
import { deleteMessages, snapshotNow } from './steps.ts'

export type MessageDeletion = {
  /**
   * Deletes the messages of a channel in a range of times, of a publisher, or both. Everything acknowledged before the
   * call is gone with its end, what comes later stays. Throws `malformed` where none of the three is given, or a filter of pages, `forbidden` and
   * `not_found` as decision 45 says, `rate_limited` while the domain has too many under way, `unavailable` while all domains have.
   */
  remove(caller: UserPrincipal, domainId: string, channelId: string, query: DeletionQuery): Promise<void>
}

/** Each holds a connection of the pool most of the time. */
const MAX_DELETIONS = 4
const MAX_DELETIONS_PER_DOMAIN = 2
const RETRY_SECONDS = 5

/** What a reader narrows a page with: to ignore one, as other queries ignore what they do not know, would delete what was not meant. */
const FILTERS_OF_PAGES = ['format', 'subtopic', 'protocol', 'name', 'v', 'vb', 'vs', 'vd', 'limit', 'offset']

function refuseOtherFilters(query: DeletionQuery): void {
  const filter = FILTERS_OF_PAGES.find((name) => Object.hasOwn(query, name))
  if (filter !== undefined) throw refusedField(filter, 'does not narrow a deletion: from, to and publisher do')
}

export function createMessageDeletion(deps: {
  database: Database
  access: AccessPolicy
  journal: Journal
}): MessageDeletion {
  const { database, access, journal } = deps
  const slots = new Slots({
    what: 'deletions of messages',
    max: MAX_DELETIONS,
    share: MAX_DELETIONS_PER_DOMAIN,
    retryAfterSeconds: RETRY_SECONDS,
  })
  return {
    async remove(caller, domainId, channelId, query) {
      refuseOtherFilters(query)
      const { fromSeconds, toSeconds, publisherId } = parseFilter({ ...query, offset: 0, limit: 1, format: '' })
      if (fromSeconds === undefined && toSeconds === undefined && publisherId === undefined)
        throw new ServiceError('malformed', 'one of from, to and publisher must be given: they say what is deleted')
      const { domain, entity } = await access.locate(caller, domainId, 'channel', channelId)
      await domain.requireOn(entity, 'delete')
      const giveBack = await slots.take(domain.domainId)
      try {
        // Told before it is done: a deletion that is cut short has deleted something.
        const snapshot = await journal.change(caller, async (tx, record) => {
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
          })
          return await snapshotNow(tx)
        })
        await deleteMessages(database, { channelKey: entity.key, fromSeconds, toSeconds, publisherId }, snapshot)
      } finally {
        giveBack()
      }
    },
  }
}
