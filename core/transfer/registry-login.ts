/** The header `Registry-Authorization`: credentials for the registry, sent to the manager and passed on to the proxy. */
import { basicCredentialsOf } from '../authorization.ts'
import { Secret } from '../config/index.ts'
import { ServiceError } from '../errors/index.ts'

export type RegistryLogin = { username: string; password: Secret }

/** Undefined without the header. Throws `malformed` for one that is not Basic with a user. */
export function registryLoginOf(header: string | string[] | undefined): RegistryLogin | undefined {
  if (header === undefined) return undefined
  const given = typeof header === 'string' ? basicCredentialsOf(header) : undefined
  if (given === undefined || given.username === '') {
    throw new ServiceError('malformed', 'Registry-Authorization must be Basic <base64 of user:password>')
  }
  return { username: given.username, password: new Secret(given.password) }
}
