/**
 * Workers with the same label `site` fetch modules from each other (task manager section 6, rule 8). Platform workers and
 * workers of a domain get only peers of their own kind, because addresses inside a site are confidential.
 */
import type { ModulePeer } from '../model/module.ts'
import type { WorkerSession } from './worker-session.ts'

/** The limit of the protocol. */
const MAX_PEERS = 4

type Member = Pick<WorkerSession, 'id' | 'domainId' | 'labels' | 'peerAddress' | 'cachedDigests' | 'awaitedDigests'>

export class Sites {
  readonly #members = new Map<string, Set<Member>>()

  add(session: Member): void {
    const site = siteOf(session)
    if (site === undefined) return
    const members = this.#members.get(site)
    if (members === undefined) this.#members.set(site, new Set([session]))
    else members.add(session)
  }

  remove(session: Member): void {
    const site = siteOf(session)
    const members = site === undefined ? undefined : this.#members.get(site)
    if (site === undefined || members === undefined) return
    members.delete(session)
    if (members.size === 0) this.#members.delete(site)
  }

  /**
   * A few other workers of the site that have the module or are fetching it, in random order, so that a hundred
   * simultaneous requests are spread over the earlier ones.
   */
  peersOf(session: Member, digest: string): ModulePeer[] {
    const site = siteOf(session)
    const members = site === undefined ? undefined : this.#members.get(site)
    if (members === undefined) return []
    const holders: Member[] = []
    for (const member of members) {
      if (member.id === session.id) continue
      if (member.cachedDigests.has(digest) || member.awaitedDigests.has(digest)) holders.push(member)
    }
    return pick(holders, MAX_PEERS).map(({ id, peerAddress }) => ({ address: peerAddress, workerId: id }))
  }
}

/** Undefined: the worker does not take part. */
function siteOf({ domainId, labels, peerAddress }: Member): string | undefined {
  const site = labels['site'] ?? ''
  return site === '' || peerAddress === '' ? undefined : `${domainId ?? ''} ${site}`
}

/** The first steps of a Fisher-Yates shuffle. */
function pick<T>(from: T[], count: number): T[] {
  const size = Math.min(count, from.length)
  for (let at = 0; at < size; at++) {
    const other = at + Math.floor(Math.random() * (from.length - at))
    const [here, there] = [from[at], from[other]]
    if (here === undefined || there === undefined) break
    from[at] = there
    from[other] = here
  }
  return from.slice(0, size)
}
