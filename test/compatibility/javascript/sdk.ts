/** The JavaScript client as a test sees it: services, each with methods. */
import { createRequire } from 'node:module'
import { join } from 'node:path'

export type Method = (...args: unknown[]) => Promise<unknown>
export type ClientSdk = Record<string, Record<string, Method>>

const NAME = '@absmach/magistrala-sdk'

/** The client that is installed in `folder`, for a platform that serves everything under one address. */
export function openSdk(folder: string, base: string): ClientSdk {
  const Sdk = (createRequire(join(folder, 'package.json'))(NAME) as { default: new (urls: object) => ClientSdk })
    .default
  const names = [
    'users',
    'channels',
    'domains',
    'clients',
    'groups',
    'certs',
    'readers',
    'httpAdapter',
    'bootstrap',
    'journal',
    'rules',
    'reports',
    'auth',
    'alarms',
  ]
  return new Sdk(Object.fromEntries(names.map((name) => [`${name}Url`, base])))
}

/** `Clients.CreateClient`, for every public method of every service. */
export function methodsOf(sdk: ClientSdk): string[] {
  return Object.entries(sdk).flatMap(([service, methods]) =>
    Object.getOwnPropertyNames(Object.getPrototypeOf(methods))
      .filter((name) => name !== 'constructor')
      .map((name) => `${service}.${name}`),
  )
}
