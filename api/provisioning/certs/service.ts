/**
 * The rules of certificates (contract 9.3). A certificate is a credential of its client: issuing, renewing and revoking
 * require `update` on the client, viewing requires `read`. A private key is returned only once.
 */
import { X509Certificate } from 'node:crypto'
import type { AccessPolicy, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { publicKeyDer, readSigningRequest } from '#x509/index.ts'
import type { Authority } from './authority.ts'
import { lifetimeOf, issueClientCertificate } from './issue.ts'
import type { CreatedCertificate, StatusUrls } from './issue.ts'
import type { CertificateRecord } from './repository.ts'
import {
  findCertificate,
  findLastRevocation,
  insertCertificate,
  listCertificates,
  revokeCertificates,
} from './repository.ts'
import type { CertificateOrder, CertificatesQuery, SigningOrder } from './schema.ts'

/** A certificate, with its private key in the response that created it. */
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

  /** Generates a key pair and issues a certificate. Throws `malformed`, `forbidden`, `not_found`. */
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

  /**
   * Creates a certificate for a client that a transaction is about to create. `storeWithin` stores it. Throws
   * `malformed`.
   */
  async prepare(clientId: string, order: CertificateOrder): Promise<CreatedCertificate> {
    return await this.#make({ clientId, lifetime: this.#lifetime(order.ttl), order })
  }

  /** Stores a certificate in the transaction that creates its client. It checks no permissions. */
  storeWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    owner: CertificateOwner,
    made: CreatedCertificate,
  ): void {
    this.#storeWithin(tx, record, caller, owner, 'cert.issue', made)
  }

  /** Signs the key of a device. Throws the same errors as `issue`. */
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

  /**
   * Lists the certificates of one client, or of every client on which the caller has `read`, newest first. `entity_id` selects those of
   * one client, like any filter: an unknown client has none.
   */
  async list(
    caller: UserPrincipal,
    domainId: string,
    clientId: string | undefined,
    { offset, limit, cursor, revoked, entity_id: entityId }: CertificatesQuery,
  ): Promise<Page<CertificateRecord>> {
    const owner = clientId === undefined ? undefined : await this.#locate(caller, domainId, clientId, 'read')
    const domain = await this.#deps.access.enter(caller, domainId)
    const { total, certificates, next } = await listCertificates(this.#deps.database.db, {
      domainKey: domain.domainKey,
      clientKey: owner?.clientKey,
      entityId: entityId === '' ? undefined : entityId,
      reachable: domain.reachable('client', 'read', 'c'),
      revoked,
      offset,
      limit,
      cursor,
    })
    return { total, offset, limit, items: certificates, next }
  }

  /**
   * Issues a new certificate for the same key with the same lifetime. The old one remains valid until it expires or is
   * revoked.
   */
  async renew(caller: UserPrincipal, domainId: string, serial: string): Promise<ShownCertificate> {
    const { owner, certificate } = await this.#find(caller, domainId, serial, 'update')
    if (certificate.revokedAt !== null)
      throw new ServiceError('invalid_state', 'a revoked certificate cannot be renewed: issue a new one')
    const { authority } = this.#deps
    const now = new Date()
    const old = new X509Certificate(certificate.pem)
    const lifeMs = Date.parse(old.validTo) - Date.parse(old.validFrom)
    const leftMs = authority.notAfter.getTime() - now.getTime()
    const lifetime = lifetimeOf(`${Math.floor(Math.min(lifeMs, leftMs) / 1000)}s`, authority, now)
    const made = await this.#make({ clientId: owner.clientId, lifetime, publicKey: publicKeyDer(old.publicKey) })
    return await this.#store(caller, owner, 'cert.renew', made)
  }

  /**
   * Revokes a certificate by serial, or all certificates of a client by its id. Idempotent. Returns the time of the
   * revocation.
   */
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
    // A concurrent request has revoked it.
    return revokedAt ?? (await findCertificate(db, owner.domainKey, serial))?.revokedAt ?? ''
  }

  /**
   * Revokes all certificates of a client and returns the time of the revocation. A client without certificates is not an error:
   * the time is then the present.
   */
  async revokeAll(caller: UserPrincipal, domainId: string, clientId: string): Promise<string> {
    const owner = await this.#locate(caller, domainId, clientId, 'update')
    const { clientKey } = owner
    const revoked = await this.#revokeWhich(caller, owner, { clientKey })
    return revoked ?? (await findLastRevocation(this.#deps.database.db, clientKey)) ?? new Date().toISOString()
  }

  #lifetime(ttl: string | undefined) {
    return lifetimeOf(ttl, this.#deps.authority, new Date())
  }

  async #make(options: Parameters<typeof issueClientCertificate>[2]): Promise<CreatedCertificate> {
    return await issueClientCertificate(this.#deps.authority, this.#deps.urls, options)
  }

  async #locate(caller: UserPrincipal, domainId: string, clientId: string, action: string): Promise<CertificateOwner> {
    const { domain, entity } = await this.#deps.access.locate(caller, domainId, 'client', clientId)
    const { key } = await domain.requireOn(entity, action)
    return { domainKey: domain.domainKey, clientKey: key, clientId }
  }

  /**
   * Returns a certificate and its client. A certificate of a deleted client is `not_found`, because no user has
   * permissions on it.
   */
  async #find(caller: UserPrincipal, domainId: string, serial: string, action: string) {
    const { domainKey } = await this.#deps.access.enter(caller, domainId)
    const certificate = await findCertificate(this.#deps.database.db, domainKey, normalSerial(serial))
    if (certificate === undefined) throw notFound()
    const owner = await this.#locate(caller, domainId, certificate.clientId, action)
    // A new client with the same id must not get the certificates of the old one.
    if (owner.clientKey !== certificate.clientKey) throw notFound()
    return { owner, certificate }
  }

  async #store(
    caller: UserPrincipal,
    owner: CertificateOwner,
    operation: string,
    made: CreatedCertificate,
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
    { key, fingerprint, ...certificate }: CreatedCertificate,
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
        // The key of the client invalidates cached credentials of its certificates.
        entityKeys: [owner.clientKey],
        attributes: { client_id: owner.clientId, serial_numbers: revoked.serials },
      })
      return revoked.revokedAt
    })
  }
}

/** Normalizes a serial number: other tools write colons and upper case. */
export function normalSerial(text: string): string {
  return text.replaceAll(':', '').toLowerCase()
}
