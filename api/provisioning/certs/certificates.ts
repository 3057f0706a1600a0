/** Composition of the slice: the authority, its certificates, their clients, and TLS of the platform's listeners. */
import type { AccessPolicy, Journal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin, TlsFiles } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { loadAuthority } from './authority.ts'
import type { Authority, AuthorityConfig } from './authority.ts'
import { createClientOfCertificate } from './client-of.ts'
import type { ClientOfCertificate } from './client-of.ts'
import type { StatusUrls } from './issue.ts'
import { publicCertificateRoutes } from './public-routes.ts'
import { removeExpired } from './repository.ts'
import { certificateRoutes } from './routes.ts'
import { CertificatesService } from './service.ts'
import { OwnTls, ownNames, trusting } from './server-tls.ts'
import { CertificateStatus } from './status.ts'

export type Certificates = {
  readonly authority: Authority
  /** Returns the client of a certificate. After `cert.revoke` of the client in the journal it must be called again. */
  readonly clientOf: ClientOfCertificate
  /**
   * TLS of the HTTP listeners: the given files, or a certificate of the authority if SKEIN_TLS_NAMES is set. Undefined
   * without TLS.
   */
  tlsOf(files: TlsFiles | undefined): TlsFiles | undefined
  /** TLS of listeners that always use TLS. */
  ensureTls(files: TlsFiles | undefined): TlsFiles
  /** Renews the certificate of the listeners when it is about to expire. */
  renewOwnTls(now: Date): Promise<void>
  readonly service: CertificatesService
  readonly routes: RoutePlugin
  stop(): Promise<void>
}

/** Days that expired certificates are kept in listings. */
const EXPIRED_KEPT_DAYS = 30
/** Interval of the removal of expired certificates and of the renewal check. */
const INTERVAL_MS = 3_600_000

export async function startCertificates(deps: {
  config: AuthorityConfig & { tlsNames: readonly string[]; publicUrl: string }
  database: Database
  journal: Journal
  access: AccessPolicy
  keyring: Keyring
  logger: Logger
}): Promise<Certificates> {
  const { config, database, journal, access, keyring, logger } = deps
  const authority = await loadAuthority(config, database, keyring)
  const urls: StatusUrls = { ocspUrl: `${config.publicUrl}/certs/ocsp`, crlUrl: `${config.publicUrl}/certs/crl` }
  const status = new CertificateStatus(database.db, authority)
  const names = config.tlsNames.length === 0 ? ownNames(config.publicUrl) : config.tlsNames
  const own = await OwnTls.make(authority, urls, names)
  const ensureTls = (files: TlsFiles | undefined) => (files === undefined ? own.files : trusting(files, authority))
  const renewOwnTls = (now: Date) => own.renew(now)
  const service = new CertificatesService({ database, journal, access, authority, urls })
  const rounds = startRounds(async () => {
    await renewOwnTls(new Date()).catch((error: unknown) => {
      logger.warn({ err: error }, 'failed to renew the certificate of the listeners; retrying in an hour')
    })
    await removeExpired(database.db, EXPIRED_KEPT_DAYS).catch((error: unknown) => {
      logger.warn({ err: error }, 'failed to remove expired certificates; retrying in an hour')
    })
    return { pauseMs: INTERVAL_MS, isWakeable: false }
  })
  return {
    authority,
    clientOf: createClientOfCertificate({ database, journal }),
    tlsOf: (files) => (files === undefined && config.tlsNames.length === 0 ? undefined : ensureTls(files)),
    ensureTls,
    renewOwnTls,
    service,
    routes: async (app) => {
      await certificateRoutes(service, authority)(app)
      await publicCertificateRoutes(status, authority)(app)
    },
    stop: () => rounds.stop(),
  }
}
