/** Debian's redis-server as a child of the test, on a port that stays the same over its kills. */
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { createConnection } from 'node:net'
import { freePort } from '../harness/ports.ts'
import { until } from '../harness/until.ts'

/** Where there is none, tests that need it say so; a run that sets CI=true must have it. */
export function hasRedisServer(): boolean {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    if (process.env['CI'] === 'true') throw new Error('redis-server is not installed: apt-get install redis-server')
    return false
  }
}

export class RedisServer implements AsyncDisposable {
  readonly port: number
  #child: ChildProcess | undefined

  private constructor(port: number) {
    this.port = port
  }

  static async start(): Promise<RedisServer> {
    const server = new RedisServer(await freePort())
    await server.begin()
    return server
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`
  }

  get isRunning(): boolean {
    return this.#child !== undefined
  }

  async begin(): Promise<void> {
    this.#child = spawn(
      'redis-server',
      ['--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
      {
        stdio: 'ignore',
      },
    )
    await until(() => this.#answers(), 'redis-server answers')
  }

  async kill(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child === undefined || child.exitCode !== null) return
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await gone
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }

  #answers(): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = createConnection({ port: this.port, host: '127.0.0.1' })
      socket.on('connect', () => socket.write('PING\r\n'))
      socket.on('data', (chunk) => {
        socket.destroy()
        resolve(chunk.toString().startsWith('+PONG'))
      })
      socket.on('error', () => resolve(false))
    })
  }
}
