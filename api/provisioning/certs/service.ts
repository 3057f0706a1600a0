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
import { publicKeyDer, readSigningRequest } from '#core/x509/index.ts'
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

/** A certificate, and its private key in the answer that made it. */
export type ShownCertificate = { certificate: CertificateRecord; key?: string | undefined }

export type CertificatesDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  authority: Authority
  urls: StatusUrls
}

export type CertificateOwner = { domainKey: number; clientKey: number; clientId: string }

const notFound = () => new ServiceError('not_found', 'entity not found')

export class CertificatesService {
  readonly #deps: CertificatesDeps

  constructor(deps: CertificatesDeps) {
    this.#deps = deps
  }

  /** Makes a key and its certificate. Throws `malformed`, `forbidden`, `not_found`. */
  async issue(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    order: CertificateOrder,
  ): Promise<ShownCertificate> {
    const lifetime = this.#lifetime(order.ttl)
    const owner = await this.#locate(caller, domainId, clientId, 'update')
    return await this.#store(caller, owner, 'cert.issue', await this.#make({ clientId, lifetime, order }))
  }

  /** For a client that a transaction is about to make: to be stored with `storeWithin`. Throws `malformed`. */
  async prepare(clientId: string, order: CertificateOrder): Promise<MadeCertificate> {
    return await this.#make({ clientId, lifetime: this.#lifetime(order.ttl), order })
  }

  /** Stores a certificate in the transaction that makes its client; no right is checked. */
  storeWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    owner: CertificateOwner,
    made: MadeCertificate,
  ): void {
    this.#storeWithin(tx, record, caller, owner, 'cert.issue', made)
  }

  /** Signs the key of a device that keeps it. Throws as `issue`. */
  async sign(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    { csr, ttl }: SigningOrder,
  ): Promise<ShownCertificate> {
    const lifetime = this.#lifetime(ttl)
    const publicKey = readSigningRequest(csr, '/csr')
    const owner = await this.#locate(caller, domainId, clientId, 'update')
    return await this.#store(caller, owner, 'cert.issue', await this.#make({ clientId, lifetime, publicKey }))
  }

  async get(caller: UserPrincipal, domainId: string, serial: string): Promise<ShownCertificate> {
    return { certificate: (await this.#find(caller, domainId, serial, 'read')).certificate }
  }

  /** Those of one client, or of every client that the caller may read; the newest first. */
  async list(
    caller: UserPrincipal,
    domainId: string,
    clientId: string | undefined,
    { offset, limit, revoked }: CertificateQuery,
  ): Promise<Page<CertificateRecord>> {
    const owner = clientId === undefined ? undefined : await this.#locate(caller, domainId, clientId, 'read')
    const domain = await this.#deps.access.enter(caller, domainId)
    const { total, certificates } = await listCertificates(this.#deps.database.db, {
      domainKey: domain.domainKey,
      clientKey: owner?.clientKey,
      reachable: domain.reachable('client', 'read', 'c'),
      revoked,
      offset,
      limit,
    })
    return { total, offset, limit, items: certificates }
  }

  /** A new certificate for the same key, good for as long again; the old one stays good until it expires or is revoked. */
  async renew(caller: UserPrincipal, domainId: string, serial: string): Promise<ShownCertificate> {
    const { owner, certificate } = await this.#find(caller, domainId, serial, 'update')
    if (certificate.revokedAt !== null)
      throw new ServiceError('invalid_state', 'a revoked certificate is not renewed: issue a new one')
    const { authority } = this.#deps
    const now = new Date()
    const old = new X509Certificate(certificate.pem)
    const lifeMs = Date.parse(old.validTo) - Date.parse(old.validFrom)
    const leftMs = authority.notAfter.getTime() - now.getTime()
    const lifetime = lifetimeOf(`${Math.floor(Math.min(lifeMs, leftMs) / 1000)}s`, authority, now)
    const made = await this.#make({ clientId: owner.clientId, lifetime, publicKey: publicKeyDer(old.publicKey) })
    return await this.#store(caller, owner, 'cert.renew', made)
  }

  /** By serial one, by the id of a client all of it. Again: nothing changes. Returns when it was revoked. */
  async revoke(caller: UserPrincipal, domainId: string, serialOrClientId: string): Promise<string> {
    const { db } = this.#deps.database
    if (isId(serialOrClientId)) {
      const owner = await this.#locate(caller, domainId, serialOrClientId, 'update')
      const { clientKey } = owner
      const at = (await this.#revokeWhich(caller, owner, { clientKey })) ?? (await findLastRevocation(db, clientKey))
      if (at === undefined) throw notFound()
      return at
    }
    const { owner, certificate } = await this.#find(caller, domainId, serialOrClientId, 'update')
    const { serial } = certificate
    const revokedAt = certificate.revokedAt ?? (await this.#revokeWhich(caller, owner, { serial }))
    // Nothing was left to revoke: another call was faster.
    return revokedAt ?? (await findCertificate(db, owner.domainKey, serial))?.revokedAt ?? ''
  }

  /** All of a client; none is no error. */
  async revokeAll(caller: UserPrincipal, domainId: string, clientId: string): Promise<void> {
    const owner = await this.#locate(caller, domainId, clientId, 'update')
    await this.#revokeWhich(caller, owner, { clientKey: owner.clientKey })
  }

  #lifetime(ttl: string | undefined) {
    return lifetimeOf(ttl, this.#deps.authority, new Date())
  }

  async #make(options: Parameters<typeof makeClientCertificate>[2]): Promise<MadeCertificate> {
    return await makeClientCertificate(this.#deps.authority, this.#deps.urls, options)
  }

  async #locate(caller: UserPrincipal, domainId: string, clientId: string, action: string): Promise<CertificateOwner> {
    const { domain, entity } = await this.#deps.access.locate(caller, domainId, 'client', clientId)
    const { key } = await domain.requireOn(entity, action)
    return { domainKey: domain.domainKey, clientKey: key, clientId }
  }

  /** A certificate whose client is gone is seen by nobody: there is no one left who may read it. */
  async #find(caller: UserPrincipal, domainId: string, serial: string, action: string) {
    const { domainKey } = await this.#deps.access.enter(caller, domainId)
    const certificate = await findCertificate(this.#deps.database.db, domainKey, normalSerial(serial))
    if (certificate === undefined) throw notFound()
    const owner = await this.#locate(caller, domainId, certificate.clientId, action)
    // A new client of the same id has nothing of the old one.
    if (owner.clientKey !== certificate.clientKey) throw notFound()
    return { owner, certificate }
  }

  async #store(
    caller: UserPrincipal,
    owner: CertificateOwner,
    operation: string,
    made: MadeCertificate,
  ): Promise<ShownCertificate> {
    return await this.#deps.journal.change(caller, (tx, record) =>
      Promise.resolve(this.#storeWithin(tx, record, caller, owner, operation, made)),
    )
  }

  #storeWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    owner: CertificateOwner,
    operation: string,
    { key, fingerprint, ...certificate }: MadeCertificate,
  ): ShownCertificate {
    const { id: authority } = this.#deps.authority
    tx.defer(insertCertificate(tx, { ...certificate, ...owner, fingerprint, authority, createdBy: caller.id }))
    const { serial, notBefore, notAfter } = certificate
    record({
      operation,
      domainKey: owner.domainKey,
      entityKeys: [owner.clientKey],
      attributes: { client_id: owner.clientId, serial_number: serial, expiry_time: notAfter.toISOString() },
    })
    const times = { notBefore: notBefore.toISOString(), notAfter: notAfter.toISOString(), revokedAt: null }
    return { certificate: { ...certificate, ...owner, ...times }, key }
  }

  async #revokeWhich(
    caller: UserPrincipal,
    owner: CertificateOwner,
    which: Parameters<typeof revokeCertificates>[1],
  ): Promise<string | undefined> {
    return await this.#deps.journal.change(caller, async (tx, record) => {
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
}

/** Serial numbers are written with colons and in capitals elsewhere. */
export function normalSerial(text: string): string {
  return text.replaceAll(':', '').toLowerCase()
}
