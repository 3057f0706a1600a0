import { expect, test } from 'vitest'
import { Sites } from './sites.ts'

const DIGEST = `sha256:${'a'.repeat(64)}`

type Member = Parameters<Sites['add']>[0]

/** A worker of the site north that has the module, by default. */
function aMember(id: string, changed: Partial<Member> = {}): Member {
  return {
    id,
    domainId: null,
    labels: { site: 'north' },
    peerAddress: `${id}:7073`,
    cachedDigests: new Set([DIGEST]),
    awaitedDigests: new Set(),
    ...changed,
  }
}

function sitesOf(...members: Member[]): Sites {
  const sites = new Sites()
  for (const member of members) sites.add(member)
  return sites
}

const asked = (sites: Sites, member: Member) =>
  sites
    .peersOf(member, DIGEST)
    .map(({ workerId }) => workerId)
    .toSorted()

test('a worker gets as peers the workers of its site that have the module or are fetching it', () => {
  const asker = aMember('asker')
  const getting = aMember('getting', { cachedDigests: new Set(), awaitedDigests: new Set([DIGEST]) })
  const without = aMember('without', { cachedDigests: new Set() })
  const elsewhere = aMember('elsewhere', { labels: { site: 'south' } })
  const sites = sitesOf(asker, aMember('has'), getting, without, elsewhere)
  expect(asked(sites, asker)).toEqual(['getting', 'has'])
  expect(sites.peersOf(asker, DIGEST).find(({ workerId }) => workerId === 'has')?.address).toBe('has:7073')
})

test('workers of a domain and platform workers get only peers of their own kind', () => {
  const [ours, theirs] = [aMember('ours', { domainId: 'one' }), aMember('theirs', { domainId: 'two' })]
  const [mine, platform] = [aMember('mine', { domainId: 'one' }), aMember('platform')]
  const sites = sitesOf(ours, theirs, mine, platform)
  expect(asked(sites, ours)).toEqual(['mine'])
  expect(asked(sites, theirs)).toEqual([])
  expect(asked(sites, platform)).toEqual([])
})

test('a worker without a peer address gets no peers and is no peer; nor is one that left', () => {
  const [silent, nameless] = [aMember('silent', { peerAddress: '' }), aMember('nameless', { labels: { site: '' } })]
  const [gone, asker] = [aMember('gone'), aMember('asker')]
  const sites = sitesOf(silent, nameless, gone, asker)
  sites.remove(gone)
  for (const member of [silent, nameless, asker]) expect(asked(sites, member)).toEqual([])
})

test('at most four peers are selected, each of many from time to time', () => {
  const asker = aMember('asker')
  const sites = sitesOf(asker, ...Array.from({ length: 20 }, (_, index) => aMember(`w${index}`)))
  const named = new Set<string>()
  for (let round = 0; round < 500; round++) {
    const peers = asked(sites, asker)
    expect(new Set(peers).size).toBe(4)
    for (const id of peers) named.add(id)
  }
  expect(named.size).toBe(20)
})
