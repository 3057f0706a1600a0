/**
 * The rules of certificates (contract 9.3). A certificate is a credential of its client: whoever may update the client may
 * issue, renew and revoke, whoever may read it sees its certificates, and nobody sees a private key twice.
 */
import { X509Certificate } from 'node:crypto'
import type { AccessPolicy, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { Authority } from './authority.ts'
import { lifetimeOf, makeClientCertificate } from './make.ts'
import type { MadeCertificate, StatusUrls } from './make.ts'
import type { CertificateRecord } from './repository.ts'
import {
  findCertificate,
  findLastRevocation,
  insertCertificate,
  listCertificates,
  revokeCertificates,
} from './repository.ts'
import type { CertificateOrder, CertificateQuery, SigningOrder } from './schema.ts'
import { publicKeyDer } from './x509/certificate.ts'
import { readSigningRequest } from './x509/signing-request.ts'

/** A certificate, and its private key in the answer that made it. */
export type ShownCertificate = { certificate: CertificateRecord; key?: string | undefined }

export type CertificatesService = {
  /** Makes a key and its certificate. Throws `malformed`, `forbidden`, `not_found`. */
  issue(caller: UserPrincipal, domainId: string, clientId: string, order: CertificateOrder): Promise<ShownCertificate>
  /** The same for a client that this transaction made; nothing is asked again. Throws `malformed`. */
  issueWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    owner: CertificateOwner,
    order: CertificateOrder,
  ): ShownCertificate
  /** Signs the key of a device that keeps it. Throws as `issue`. */
  sign(caller: UserPrincipal, domainId: string, clientId: string, order: SigningOrder): Promise<ShownCertificate>
  get(caller: UserPrincipal, domainId: string, serial: string): Promise<ShownCertificate>
  /** Those of one client, or of every client that the caller may read; the newest first. */
  list(
    caller: UserPrincipal,
    domainId: string,
    clientId: string | undefined,
    query: CertificateQuery,
  ): Promise<Page<CertificateRecord>>
  /** A new certificate for the same key, good for as long again; the old one stays good until it expires or is revoked. */
  renew(caller: UserPrincipal, domainId: string, serial: string): Promise<ShownCertificate>
  /** By serial one, by the id of a client all of it. Again: nothing changes. Gives when it was revoked. */
  revoke(caller: UserPrincipal, domainId: string, serialOrClientId: string): Promise<string>
  /** All of a client; none is no error. */
  revokeAll(caller: UserPrincipal, domainId: string, clientId: string): Promise<void>
}

export type CertificatesDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  authority: Authority
  urls: StatusUrls
}

export type CertificateOwner = { domainKey: number; clientKey: number; clientId: string }

const notFound = () => new ServiceError('not_found', 'entity not found')

export function createCertificatesService(deps: CertificatesDeps): CertificatesService {
  const { database, journal, access, authority, urls } = deps

  async function locate(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    action: string,
  ): Promise<CertificateOwner> {
    const { domain, entity } = await access.locate(caller, domainId, 'client', clientId)
    const { key } = await domain.requireOn(entity, action)
    return { domainKey: domain.domainKey, clientKey: key, clientId }
  }

  /** A certificate whose client is gone is seen by nobody: there is no one left who may read it. */
  async function find(caller: UserPrincipal, domainId: string, serial: string, action: string) {
    const { domainKey } = await access.enter(caller, domainId)
    const certificate = await findCertificate(database.db, domainKey, normalSerial(serial))
    if (certificate === undefined) throw notFound()
    const owner = await locate(caller, domainId, certificate.clientId, action)
    // A new client of the same id has nothing of the old one.
    if (owner.clientKey !== certificate.clientKey) throw notFound()
    return { owner, certificate }
  }

  function storeWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    owner: CertificateOwner,
    operation: string,
    made: MadeCertificate,
  ): ShownCertificate {
    const { key, fingerprint, ...certificate } = made
    const row = { ...certificate, ...owner, fingerprint, authority: authority.id, createdBy: caller.id }
    tx.defer(insertCertificate(tx, row))
    const { serial, notBefore, notAfter } = certificate
    record({
      operation,
      domainKey: owner.domainKey,
      entityKeys: [owner.clientKey],
      attributes: { client_id: owner.clientId, serial_number: serial, expiry_time: notAfter.toISOString() },
    })
    return {
      certificate: {
        ...certificate,
        ...owner,
        notBefore: notBefore.toISOString(),
        notAfter: notAfter.toISOString(),
        revokedAt: null,
      },
      key,
    }
  }

  const store = (caller: UserPrincipal, owner: CertificateOwner, operation: string, made: MadeCertificate) =>
    journal.change(caller, (tx, record) => Promise.resolve(storeWithin(tx, record, caller, owner, operation, made)))

  async function revokeWhich(
    caller: UserPrincipal,
    owner: CertificateOwner,
    which: Parameters<typeof revokeCertificates>[1],
  ): Promise<string | undefined> {
    return await journal.change(caller, async (tx, record) => {
      const revoked = await revokeCertificates(tx, which)
      if (revoked === undefined) return undefined
      record({
        operation: 'cert.revoke',
        domainKey: owner.domainKey,
        // The key of the client: whoever remembers what its certificates may do forgets it.
        entityKeys: [owner.clientKey],
        attributes: { client_id: owner.clientId, serial_numbers: revoked.serials },
      })
      return revoked.revokedAt
    })
  }

  return {
    async issue(caller, domainId, clientId, order) {
      const lifetime = lifetimeOf(order.ttl, authority, new Date())
      const owner = await locate(caller, domainId, clientId, 'update')
      const made = makeClientCertificate(authority, urls, { clientId, lifetime, order })
      return await store(caller, owner, 'cert.issue', made)
    },
    issueWithin(tx, record, caller, owner, order) {
      const lifetime = lifetimeOf(order.ttl, authority, new Date())
      const made = makeClientCertificate(authority, urls, { clientId: owner.clientId, lifetime, order })
      return storeWithin(tx, record, caller, owner, 'cert.issue', made)
    },
    async sign(caller, domainId, clientId, { csr, ttl }) {
      const lifetime = lifetimeOf(ttl, authority, new Date())
      const { publicKey } = readSigningRequest(csr)
      const owner = await locate(caller, domainId, clientId, 'update')
      const made = makeClientCertificate(authority, urls, { clientId, lifetime, publicKey })
      return await store(caller, owner, 'cert.issue', made)
    },
    async get(caller, domainId, serial) {
      return { certificate: (await find(caller, domainId, serial, 'read')).certificate }
    },
    async list(caller, domainId, clientId, { offset, limit, revoked }) {
      const owner = clientId === undefined ? undefined : await locate(caller, domainId, clientId, 'read')
      const domain = await access.enter(caller, domainId)
      const { total, certificates } = await listCertificates(database.db, {
        domainKey: domain.domainKey,
        clientKey: owner?.clientKey,
        reachable: domain.reachable('client', 'read', 'c'),
        revoked,
        offset,
        limit,
      })
      return { total, offset, limit, items: certificates }
    },
    async renew(caller, domainId, serial) {
      const { owner, certificate } = await find(caller, domainId, serial, 'update')
      if (certificate.revokedAt !== null)
        throw new ServiceError('invalid_state', 'a revoked certificate is not renewed: issue a new one')
      const now = new Date()
      const old = new X509Certificate(certificate.pem)
      const lifeMs = Date.parse(old.validTo) - Date.parse(old.validFrom)
      const leftMs = authority.notAfter.getTime() - now.getTime()
      const lifetime = lifetimeOf(`${Math.floor(Math.min(lifeMs, leftMs) / 1000)}s`, authority, now)
      const made = makeClientCertificate(authority, urls, {
        clientId: owner.clientId,
        lifetime,
        publicKey: publicKeyDer(old.publicKey),
      })
      return await store(caller, owner, 'cert.renew', made)
    },
    async revoke(caller, domainId, serialOrClientId) {
      if (isId(serialOrClientId)) {
        const owner = await locate(caller, domainId, serialOrClientId, 'update')
        const { clientKey } = owner
        const revokedAt = await revokeWhich(caller, owner, { clientKey })
        const at = revokedAt ?? (await findLastRevocation(database.db, clientKey))
        if (at === undefined) throw notFound()
        return at
      }
      const { owner, certificate } = await find(caller, domainId, serialOrClientId, 'update')
      const { serial } = certificate
      const revokedAt = certificate.revokedAt ?? (await revokeWhich(caller, owner, { serial }))
      // Nothing was left to revoke: another call was faster.
      return revokedAt ?? (await findCertificate(database.db, owner.domainKey, serial))?.revokedAt ?? ''
    },
    async revokeAll(caller, domainId, clientId) {
      const owner = await locate(caller, domainId, clientId, 'update')
      await revokeWhich(caller, owner, { clientKey: owner.clientKey })
    },
  }
}

/** Serial numbers are written with colons and in capitals elsewhere. */
export function normalSerial(text: string): string {
  return text.replaceAll(':', '').toLowerCase()
}
