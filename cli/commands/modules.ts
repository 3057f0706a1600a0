/** `skein modules`. */
import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import type { ApiRequest, Cli, Group, Reply } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { saveResponse } from '../shared/save-response.ts'
import { createProgress, formatBytes } from '../shared/progress.ts'
import { arg, isRecord, json } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { tryModule } from './module-trial.ts'
import { RUN_FLAGS } from './run-fields.ts'

const SERVICE = 'manager'
/** A registry can take minutes to accept a large module. */
const PUSH_SILENCE_MS = 300_000

/** The domain in use, if there is one. */
const ofDomain = ({ domain }: Given) => ({ domain_id: domain })

export const modules: Group = {
  name: 'modules',
  summary: 'modules in registries and caches',
  columns: ['digest', 'source', 'size', 'reference', 'signed', 'last_used_at'],
  commands: [
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list the modules that tasks of your domains use',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/modules', auth: 'optional', query: ['limit', 'offset'] },
    },
    {
      words: 'get',
      args: '<digest>',
      tail: 'user',
      summary: 'show a module: where it is cached, what it exports and imports',
      example: '<digest>',
      call: { method: 'GET', service: SERVICE, path: '/modules/{digest}', auth: 'optional' },
    },
    {
      words: 'inspect',
      args: '<file>',
      tail: 'domain',
      summary: 'show exports and imports of a module, and whether a task would accept it',
      example: 'add.wasm',
      run: inspect,
    },
    {
      words: 'download',
      args: '<digest> <file>',
      tail: 'user',
      summary: 'download a module',
      example: '<digest> add.wasm',
      run: download,
    },
    {
      words: 'pull',
      args: '<reference>',
      tail: 'domain',
      summary: 'fetch a module into the proxy before its first use, with --workers all also into the workers',
      example: '<reference>',
      flags: ['workers'],
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/modules',
        auth: 'optional',
        body: (given) => {
          const workers = given.flags.get('workers')
          return {
            reference: arg(given, 'reference'),
            ...ofDomain(given),
            ...(workers === undefined ? {} : { workers: workers === 'all' ? workers : workers.split(',') }),
          }
        },
      },
    },
    {
      words: 'ticket',
      args: '<digest>',
      tail: 'domain',
      summary: 'issue a ticket to pull a module from the proxy with skopeo or oras, valid for an hour',
      example: '<digest>',
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/modules/tickets',
        auth: 'optional',
        body: (given) => ({ digest: arg(given, 'digest'), ...ofDomain(given) }),
      },
    },
    {
      words: 'push',
      args: '<file> <reference>',
      tail: 'domain',
      summary: 'push a module to a registry',
      example: 'add.wasm <reference>',
      flags: ['registry-user'],
      run: push,
    },
    {
      words: 'try',
      args: '<file>',
      tail: 'none',
      summary:
        'run a module on this machine as a worker does, without a platform; --message calls it as a trigger does',
      example: 'add.wasm --inputs 1,2',
      flags: ['function', ...RUN_FLAGS, 'memory', 'timeout', 'message', 'watch'],
      run: tryModule,
    },
    {
      words: 'delete',
      args: '<digest>',
      tail: 'domain',
      summary: 'remove a module of a registry from the cache',
      example: '<digest>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: '/modules/{digest}', auth: 'optional', parameters: ofDomain },
    },
    {
      words: 'policy get',
      args: '',
      tail: 'domain',
      summary: 'show the signature policy for modules',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/modules/policy', auth: 'optional', parameters: ofDomain },
    },
    {
      words: 'policy set',
      args: '<JSON_policy>',
      tail: 'domain',
      summary: 'set the signature policy: off, warn or require, with trusted public keys',
      example: `'{"signatures": "off"}'`,
      call: {
        method: 'PUT',
        service: SERVICE,
        path: '/modules/policy',
        auth: 'optional',
        parameters: ofDomain,
        body: (given) => json(given, 'JSON_policy'),
      },
    },
  ],
}

async function inspect(cli: Cli, given: Given): Promise<void> {
  const reply = await cli.request({
    method: 'POST',
    service: SERVICE,
    path: '/modules/inspect',
    query: ofDomain(given),
    file: arg(given, 'file'),
    contentType: 'application/wasm',
    authorization: 'optional',
    token: given.credential,
  })
  cli.show('data', reply, { columns: ['module', 'name', 'kind', 'params', 'results'] })
}

async function download(cli: Cli, given: Given): Promise<void> {
  const path = `/modules/${encodeURIComponent(arg(given, 'digest'))}/content`
  const request: ApiRequest = {
    method: 'GET',
    service: SERVICE,
    path,
    authorization: 'optional',
    token: given.credential,
  }
  await saveResponse(cli, request, { accept: 'application/wasm', file: arg(given, 'file'), doing: 'downloading' })
}

async function push(cli: Cli, given: Given): Promise<void> {
  const file = arg(given, 'file')
  const { size } = await stat(file).catch((error: Error) => {
    throw new CommandError(`cannot read ${file}: ${error.message}`)
  })
  const progress = createProgress(cli.output, `pushing ${basename(file)}`, formatBytes)
  try {
    const reply = await cli.request({
      method: 'PUT',
      service: SERVICE,
      path: '/modules',
      query: { reference: arg(given, 'reference'), ...ofDomain(given) },
      file,
      contentType: 'application/wasm',
      authorization: 'optional',
      token: given.credential,
      headers: registryHeaders(cli, given),
      deadlineMs: PUSH_SILENCE_MS,
      onSent: (bytes) => progress.at(bytes, size),
    })
    progress.end()
    cli.output.note(`pushed ${basename(file)} (${size} bytes) ${loginOf(reply)}`)
    cli.show('data', reply)
  } finally {
    progress.end()
  }
}

const LOGINS: Readonly<Record<string, string>> = {
  own: 'with the login of --registry-user',
  configured: 'with the login that the module proxy is configured with',
  none: 'without a login at the registry',
}

function loginOf({ value }: Reply): string {
  return LOGINS[isRecord(value) ? String(value['login']) : ''] ?? ''
}

/** Credentials for the registry only. The password comes from the environment, because a process list shows arguments. */
function registryHeaders(cli: Cli, given: Given): Record<string, string> {
  const user = given.flags.get('registry-user')
  if (user === undefined) return {}
  const password = cli.settings.environment['SKEIN_REGISTRY_PASSWORD']
  if (password === undefined) throw new CommandError('SKEIN_REGISTRY_PASSWORD is not set')
  return { 'Registry-Authorization': `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` }
}
