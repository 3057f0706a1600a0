#!/usr/bin/env node
// Stands for systemctl and systemd in a machine of test/programs/edge-installation.test.ts: it starts and stops the one unit as its
// file says (ExecStartPre, ExecStart, ExecStartPost, Environment, EnvironmentFile, %d). What the unit restricts is not tested here.
import { execFileSync, spawn } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'

const UNIT = '/etc/systemd/system/skein-worker.service'
const PID = '/run/stand-in.pid'
const LOG = '/run/stand-in.log'
const STOP_MS = 20_000

const sleep = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
const isAlive = (pid) => {
  try {
    process.kill(pid, 0)
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}
const mainPid = () => (existsSync(PID) ? Number(readFileSync(PID, 'utf8')) : 0)

function stop() {
  const pid = mainPid()
  if (pid !== 0 && isAlive(pid)) {
    process.kill(pid, 'SIGTERM')
    for (let waited = 0; isAlive(pid) && waited < STOP_MS; waited += 20) sleep(20)
    if (isAlive(pid)) process.kill(pid, 'SIGKILL')
  }
  rmSync(PID, { force: true })
}

function start() {
  if (mainPid() !== 0 && isAlive(mainPid())) return
  const text = readFileSync(UNIT, 'utf8')
  const valuesOf = (name) => [...text.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value)
  const pairs = (lines) =>
    Object.fromEntries(lines.filter((line) => /^\w+=/.test(line)).map((line) => line.split(/=(.*)/s).slice(0, 2)))
  const [, credential] = valuesOf('LoadCredential')[0].split(':')
  const files = valuesOf('EnvironmentFile').map((path) => readFileSync(path.replace(/^-/, ''), 'utf8').split('\n'))
  const environment = pairs([...files.flat(), ...valuesOf('Environment')])
  for (const [name, value] of Object.entries(environment))
    environment[name] = value.replace('%d/worker-token', credential)
  const folders = [...valuesOf('StateDirectory').map((name) => `/var/lib/${name}`), '/var/cache/skein-worker']
  for (const folder of folders) mkdirSync(folder, { recursive: true })
  const env = { PATH: '/usr/bin:/bin', ...environment }
  const asRoot = (command) =>
    execFileSync('/bin/sh', ['-c', command.replace('+', '')], {
      stdio: ['ignore', 1, 2],
      env: { PATH: '/usr/bin:/bin' },
    })
  for (const command of valuesOf('ExecStartPre')) asRoot(command)
  const log = (data) => appendFileSync(LOG, data)
  const child = spawn('/bin/sh', ['-c', `exec ${valuesOf('ExecStart')[0]} >>${LOG} 2>&1`], {
    env,
    detached: true,
    stdio: 'ignore',
  })
  writeFileSync(PID, String(child.pid))
  child.unref()
  for (const command of valuesOf('ExecStartPost')) {
    // systemd ends it with the main process.
    const post = spawn('/bin/sh', ['-c', `exec ${command.replace('+', '')} >>${LOG} 2>&1`], {
      env: { PATH: '/usr/bin:/bin' },
      stdio: 'ignore',
    })
    post.once('exit', (code) => {
      clearInterval(watch)
      if (code === 0) return process.exit(0)
      log('the start failed\n')
      stop()
      process.exit(1)
    })
    const watch = setInterval(() => {
      if (!isAlive(child.pid)) post.kill('SIGKILL')
    }, 50)
  }
}

switch (process.argv[2]) {
  case 'start':
    start()
    break
  case 'restart':
    stop()
    start()
    break
  case 'stop':
    stop()
    break
  default:
}
