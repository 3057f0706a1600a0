/** The caller of a request, authenticated before its body is read (contract decision 45: 401 before 415 and 400). */
import type { FastifyRequest } from 'fastify'
import type { Actor } from '#api/identity/index.ts'
import type { Credential } from '#http/index.ts'
import type { TaskAccess, TaskCaller } from './access.ts'

/** Stands for the key of a user where no token is required: keys of users are positive. */
export const NO_USER = 0

/** The credentials of every route of the manager; no token is needed from loopback if the settings allow it. */
export const BEARER: readonly Credential[] = ['bearer']

/** The caller in the journal. */
export const actorOf = (caller: TaskCaller): Actor => caller ?? 'system'

export type Callers = {
  /** The hook of every route of the manager. */
  readonly onRequest: (request: FastifyRequest) => Promise<void>
  of(request: FastifyRequest): TaskCaller
}

export function createCallers(access: TaskAccess): Callers {
  const callers = new WeakMap<FastifyRequest, TaskCaller>()
  return {
    onRequest: async (request) => {
      callers.set(request, await access.authenticate(request))
    },
    of: (request) => {
      if (!callers.has(request)) throw new Error('the route has no onRequest hook of the manager')
      return callers.get(request)
    },
  }
}
