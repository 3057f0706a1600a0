/** Task manager section 6: workers of one site give modules to each other by digest, over real sockets. */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import type { ServerResponse } from 'node:http'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { createTicketSigner, formatPullPath, repositoryNameOf } from '#proto/index.ts'
import type { ClientPair } from '#proto/index.ts'
import { ModuleCache, PeerServer, SiteTrust, createPeerSource } from '#worker/modules/index.ts'
import type { ModuleSource, Peer } from '#worker/modules/index.ts'
import { PEER_LIMITS } from '../../worker/modules/peer-server.ts'
import { digestOf } from './pool.ts'

const KIB = 1024
const logger = createLogger({ name: 'test', level: 'silent' })
const signer = createTicketSigner('a token of managers and proxy')
const never = new AbortController().signal
/** A module of several chunks. */
const bytes = new Uint8Array(randomBytes(700 * KIB))
const digest = digestOf(bytes)

/** Nothing in here ends because the machine is busy. */
const PATIENT = { firstMs: 60_000, pieceMs: 60_000 }

let folder: string
let opened: AsyncDisposableStack

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-site-'))
  opened = new AsyncDisposableStack()
})
afterEach(async () => {
  await opened.disposeAsync()
  rmSync(folder, { recursive: true })
})

const idOf = (index: number) => `0197a1a2-0000-7000-8000-${String(index).padStart(12, '0')}`
const ticketOf = (workerId: string, lifeSeconds = 3600, of = digest) =>
  signer.sign({ reader: `worker:${workerId}`, digest: of, reference: '' }, Math.floor(Date.now() / 1000) + lifeSeconds)

type Origin = { source: ModuleSource; offsets: number[] }

/** The proxy's part: gives the module from an offset, and counts how often. */
function originOf(given: Uint8Array = bytes): Origin {
  const offsets: number[] = []
  return {
    offsets,
    async *source(_, offset) {
      offsets.push(offset)
      for (let at = offset; at < given.length; at += 100 * KIB) {
        yield given.subarray(at, at + 100 * KIB)
        await new Promise((resolve) => setImmediate(resolve))
      }
    },
  }
}

type Site = { peer: Peer; cache: ModuleCache; bring: (peers: readonly Peer[]) => Promise<Buffer> }

function plainTrust(): SiteTrust {
  const trust = new SiteTrust({ isTls: false, shown: () => undefined })
  trust.update({ ticketKey: signer.publicKey, authorityPem: '' })
  return trust
}

/** The parts of a worker that share, with a port of its own. */
async function worker(
  index: number,
  source: ModuleSource,
  limits = PEER_LIMITS,
  trust: SiteTrust = plainTrust(),
): Promise<Site> {
  const cache = await ModuleCache.open({
    folder: join(folder, String(index)),
    maxBytes: 10_000 * KIB,
    maxModuleBytes: 10_000 * KIB,
    source: createPeerSource({ trust, source, logger, waits: PATIENT }),
    logger,
  })
  const server = await PeerServer.start({ host: '127.0.0.1', port: 0, trust, modules: cache, logger, limits })
  opened.defer(async () => {
    await cache.close()
    await server.close()
  })
  const workerId = idOf(index)
  return {
    peer: { address: `127.0.0.1:${server.port}`, workerId },
    cache,
    async bring(peers) {
      const ticket = ticketOf(workerId)
      const wanted = { digest, sizeBytes: bytes.length, sourceAddress: '', reference: '', ticket, peers }
      return readFileSync((await cache.get(wanted, never)).path)
    },
  }
}

/** A worker of the site whose answer the test decides. */
async function strangePeer(answer: (response: ServerResponse) => void): Promise<Peer> {
  const server = createHttpServer((_request, response) => answer(response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  opened.defer(() => {
    server.closeAllConnections()
    server.close()
  })
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, workerId: idOf(99) }
}

test('ten workers that request one module at the same time cost its source one transfer', async () => {
  const origin = originOf()
  const limits = { ...PEER_LIMITS, graceMs: 60_000 }
  const site = await Promise.all(Array.from({ length: 10 }, (_, index) => worker(index, origin.source, limits)))
  const brought = await Promise.all(
    site.map(({ bring }, index) => bring(site.slice(Math.max(0, index - 4), index).map(({ peer }) => peer))),
  )
  for (const copy of brought) expect(copy.equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([0])
})

test('a later worker gets the module from the others, without a request to the source', async () => {
  const origin = originOf()
  const [first, second] = [await worker(1, origin.source), await worker(2, origin.source)]
  await first.bring([])
  expect((await second.bring([first.peer])).equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([0])
})

test('bytes of a peer that sends wrong content are dropped, and the source is asked for all of them', async () => {
  const liar = await strangePeer((response) => response.end(new Uint8Array(bytes.length)))
  const origin = originOf()
  const honest = await worker(1, origin.source)
  expect((await honest.bring([liar])).equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([0])
})

test('a peer that sends more bytes than the module has is disconnected', async () => {
  const flood = await strangePeer((response) => {
    const more = () => {
      while (!response.destroyed && response.write(new Uint8Array(100 * KIB)));
      if (!response.destroyed) response.once('drain', more)
    }
    more()
  })
  const origin = originOf()
  expect((await (await worker(1, origin.source)).bring([flood])).equals(bytes)).toBe(true)
})

test('a peer that dies during a transfer is dropped, and the source continues it', async () => {
  const dying = await strangePeer((response) => {
    response.writeHead(200, { 'content-length': bytes.length })
    response.write(bytes.subarray(0, 100 * KIB), () => setTimeout(() => response.destroy(), 100))
  })
  const origin = originOf()
  expect((await (await worker(1, origin.source)).bring([dying])).equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([100 * KIB])
})

test('missing peers delay only the request to the source', async () => {
  const gone = createServer()
  await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve))
  const { port } = gone.address() as AddressInfo
  await new Promise((resolve) => gone.close(resolve))
  const origin = originOf()
  const alone = await worker(1, origin.source)
  const peer = { address: `127.0.0.1:${port}`, workerId: idOf(7) }
  expect((await alone.bring([peer, { ...peer, address: 'no.such.host.invalid:1' }])).equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([0])
})

test('a peer that waits for a module which never arrives fails in the end', async () => {
  const origin = originOf()
  const empty = await worker(1, origin.source, { ...PEER_LIMITS, graceMs: 50 })
  expect((await (await worker(2, origin.source)).bring([empty.peer])).equals(bytes)).toBe(true)
  expect(origin.offsets).toEqual([0])
})

test('two workers that are directed to each other both get the module', async () => {
  const origin = originOf()
  const short = { ...PEER_LIMITS, graceMs: 50 }
  const [one, two] = [await worker(1, origin.source, short), await worker(2, origin.source, short)]
  const both = await Promise.all([one.bring([two.peer]), two.bring([one.peer])])
  for (const copy of both) expect(copy.equals(bytes)).toBe(true)
})

test('a reader of an interrupted download continues at the source', async () => {
  const gate = Promise.withResolvers<void>()
  const breaking: ModuleSource = async function* () {
    yield bytes.subarray(0, 100 * KIB)
    await gate.promise
    throw new ServiceError('not_found', 'the source has it no more')
  }
  const origin = originOf()
  const [first, second] = [await worker(1, breaking), await worker(2, origin.source)]
  const failing = first.bring([]).catch((error: unknown) => error)
  const following = second.bring([first.peer])
  await second.cache.news
  gate.resolve()
  expect(await failing).toMatchObject({ kind: 'not_found' })
  expect((await following).equals(bytes)).toBe(true)
})

async function askAsStranger(peer: Peer, ticket: string, of = digest): Promise<unknown> {
  const name = repositoryNameOf({ digest: of, reference: '' })
  const path = formatPullPath({ name, kind: 'blobs', reference: of })
  const headers = { authorization: `Bearer ${ticket}` }
  try {
    const answer = await fetch(`http://${peer.address}${path}`, { headers, signal: AbortSignal.timeout(20_000) })
    const body = await answer.arrayBuffer()
    return answer.ok ? body.byteLength : answer.status
  } catch {
    return 'no answer'
  }
}

test('a stranger is refused: without a ticket, with an expired one, one of another module or of another installation', async () => {
  const holder = await worker(1, originOf().source)
  await holder.bring([])
  const id = idOf(2)
  const elsewhere = createTicketSigner('another token altogether')
  const soon = Math.floor(Date.now() / 1000) + 3600
  const foreign = elsewhere.sign({ reader: `worker:${id}`, digest, reference: '' }, soon)
  const ofPeople = signer.sign({ reader: 'platform', digest, reference: '' }, soon)
  const other = digestOf(new Uint8Array(1))
  for (const ticket of ['', 'x', ticketOf(id, -1), foreign]) expect(await askAsStranger(holder.peer, ticket)).toBe(401)
  for (const ticket of [ticketOf(id, 3600, other), ofPeople]) expect(await askAsStranger(holder.peer, ticket)).toBe(403)
  const path = 'sha256:../../../etc/passwd'
  expect(await askAsStranger(holder.peer, ticketOf(id, 3600, path), path)).toBe(404)
  expect(await askAsStranger(holder.peer, ticketOf(id))).toBe(bytes.length)
})

test('a worker serves a bounded number of modules at a time', async () => {
  const limits = { ...PEER_LIMITS, maxStreams: 1, graceMs: 60_000 }
  const busy = await worker(1, originOf().source, limits)
  const waiting = askAsStranger(busy.peer, ticketOf(idOf(2)))
  const refused = async () => {
    for (;;) {
      // Which of the two comes first is open: one of them waits, the other is refused.
      const outcome = await Promise.race([waiting, askAsStranger(busy.peer, ticketOf(idOf(3)))])
      if (outcome === 429) return true
    }
  }
  expect(await refused()).toBe(true)
  await busy.bring([])
  expect([bytes.length, 429]).toContain(await waiting)
})

/** An authority of workers, and what each of them shows. */
function authorityOf(name: string) {
  const path = (file: string) => join(folder, `${name}-${file}`)
  const openssl = (...words: string[]) => execFileSync('openssl', words, { stdio: 'ignore' })
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  openssl('req', '-x509', ...newKey, '-subj', `/CN=${name}`, '-days', '2', '-keyout', path('key'), '-out', path('cert'))
  writeFileSync(path('usage'), 'extendedKeyUsage=clientAuth,serverAuth')
  const pem = readFileSync(path('cert'), 'utf8')
  return {
    pem,
    issue(workerId: string): ClientPair {
      const [key, request, cert] = [path('worker.key'), path('worker.csr'), path('worker.pem')]
      openssl('req', ...newKey, '-subj', `/CN=${workerId}`, '-keyout', key, '-out', request)
      const signed = ['-CA', path('cert'), '-CAkey', path('key'), '-days', '2', '-extfile', path('usage')]
      openssl('x509', '-req', '-in', request, ...signed, '-out', cert)
      return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
    },
  }
}

test('over TLS a ticket is valid for the worker that it names, and a connection for the intended worker only', async () => {
  const [ours, foreign] = [authorityOf('ours'), authorityOf('foreign')]
  const tlsTrust = (shown: ClientPair | undefined) => {
    const trust = new SiteTrust({ isTls: true, shown: () => shown })
    trust.update({ ticketKey: signer.publicKey, authorityPem: ours.pem })
    return trust
  }
  const shownBy = (index: number) => ours.issue(idOf(index))
  const holder = await worker(1, originOf().source, PEER_LIMITS, tlsTrust(shownBy(1)))
  await holder.bring([])
  /** How often a worker that knew the holder asked the source. */
  const asked = async (index: number, shown: ClientPair | undefined, peer = holder.peer) => {
    const origin = originOf()
    const asker = await worker(index, origin.source, PEER_LIMITS, tlsTrust(shown))
    expect((await asker.bring([peer])).equals(bytes)).toBe(true)
    return origin.offsets.length
  }
  expect(await asked(2, shownBy(2))).toBe(0)
  expect(await asked(3, shownBy(2)), 'the ticket of 3 shown by 2').toBe(1)
  expect(await asked(4, foreign.issue(idOf(4))), 'a certificate of another authority').toBe(1)
  expect(await asked(5, undefined), 'no certificate').toBe(1)
  expect(await asked(6, shownBy(6), { ...holder.peer, workerId: idOf(7) }), 'a peer that is another one').toBe(1)
  expect(await askAsStranger(holder.peer, ticketOf(idOf(2))), 'without TLS').toBe('no answer')
})
