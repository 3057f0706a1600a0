/** A platform with its console, a browser, and its administrator. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { expect } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation } from '../harness/whole.ts'
import { launchBrowser, signIn, visit } from './browser.ts'
import type { Kind, Visitor } from './browser.ts'

const ADMIN = { identity: 'admin', secret: 'the-first-admin' }

export type RunningConsole = Awaited<ReturnType<typeof startConsole>>

export async function startConsole(environment: Record<string, string> = {}) {
  await using started = new AsyncDisposableStack()
  const installation = started.use(await createInstallation(environment))
  const whole = started.use(await startWhole(installation))
  const browser: Browser = await launchBrowser()
  started.defer(() => browser.close())
  const login = async (identity: string, secret: string) =>
    (await whole.call('POST', '/users/tokens/issue', { body: { identity, secret } })).json<{ access_token: string }>()
      .access_token
  const admin = await login(ADMIN.identity, ADMIN.secret)

  /** A request that must succeed. */
  const api = async <T>(method: string, path: string, body?: unknown, token = admin): Promise<T> => {
    const answer = await whole.call(method, path, {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { body }),
    })
    expect(answer.status, `${method} ${path}: ${answer.text}`).toBeLessThan(300)
    return (answer.text === '' ? undefined : answer.json()) as T
  }

  const stack = started.move()
  return {
    installation,
    whole,
    browser,
    admin,
    login,
    api,
    made: async (path: string, body: object) => (await api<{ id: string }>('POST', path, body)).id,
    async asAdmin(kind: Kind = {}): Promise<Visitor> {
      const visitor = await visit(browser, installation.base, kind)
      await signIn(visitor.page, installation.base, ADMIN.identity, ADMIN.secret)
      return visitor
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

/** A worker that joins with this token. */
export function startVisitingWorker(
  { environment }: Installation,
  { token, name }: { token: string; name: string },
): Disposable & { kill(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'skein-console-worker-'))
  const worker = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', 'programs/worker.ts'], {
    stdio: 'ignore',
    env: {
      ...COMPILE_CACHE,
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      SKEIN_WORKER_MANAGER: `127.0.0.1:${environment['SKEIN_MANAGER_GRPC_PORT']}`,
      SKEIN_WORKER_TOKEN: token,
      SKEIN_WORKER_DATA_DIR: folder,
      SKEIN_WORKER_NAME: name,
    },
  })
  const kill = () => void worker.kill('SIGKILL')
  return {
    kill,
    [Symbol.dispose]() {
      kill()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
