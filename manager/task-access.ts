/** Authorization for a manager without the platform in its process: users and roles from the same database. */
import { startIdentity } from '#api/identity/index.ts'
import type { Identity, IdentityConfig } from '#api/identity/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import { createTaskAccess, type AuthMode, type TaskAccess, type TaskAccessDeps } from './access/access.ts'

export type OwnTaskAccess = {
  readonly access: TaskAccess
  /** The authenticate hook of the edge. */
  readonly authenticate: TaskAccessDeps['authenticate']
  readonly firstAdmin: Identity['firstAdmin']
  stop(): Promise<void>
}

export async function startTaskAccess(options: {
  infrastructure: Infrastructure
  config: IdentityConfig
  mode: AuthMode
  corsOrigins: readonly string[]
}): Promise<OwnTaskAccess> {
  const { infrastructure, config, mode, corsOrigins } = options
  const identity = await startIdentity({ ...infrastructure, config })
  infrastructure.readiness.add(...identity.journal.checks)
  const authenticate: OwnTaskAccess['authenticate'] = (request) => identity.authenticate(request)
  return {
    access: createTaskAccess({
      database: infrastructure.database,
      access: identity.access,
      quotas: identity.quotas,
      authenticate,
      mode,
      corsOrigins,
    }),
    authenticate,
    firstAdmin: identity.firstAdmin,
    stop: () => identity.stop(),
  }
}
