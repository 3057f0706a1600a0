/** Why a task cannot use a channel: told apart where a check of rights says the same for all of them. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** A sentence; undefined: channel and domain are enabled, so the user lacks a right. */
export async function whyUnusable(db: Queryable, domainId: string, channelId: string): Promise<string | undefined> {
  const { rows } = await sql<{ channel: string | null; domain: string }>`
    SELECT c.status AS channel, d.status AS domain FROM domains d
      LEFT JOIN channels c ON c.domain_key = d.key AND c.id = ${channelId} WHERE d.id = ${domainId}`.execute(db)
  const [found] = rows
  if (found === undefined || found.domain === 'deleted') return 'the domain was deleted'
  if (found.domain !== 'enabled') return 'the domain is disabled'
  if (found.channel === null) return `the channel ${channelId} was deleted`
  return found.channel === 'enabled' ? undefined : `the channel ${channelId} is disabled`
}
