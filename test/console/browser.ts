/** Chromium with the console of a running installation. A violation of the policy and a request to another host fail the test. */
import { deepEqual } from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'
import type { Browser, BrowserContext, Page } from 'playwright-core'

const PATHS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const EXECUTABLE = PATHS.find((path) => existsSync(path))
/** A user's machine may have none; CI has it. */
export const hasNoBrowser = EXECUTABLE === undefined && process.env['CI'] === undefined

/** So that the browser is silent on the network, and starts as root. */
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** Far above what a screen takes, also on a busy machine. */
export const PATIENCE_MS = 45_000
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: EXECUTABLE ?? 'chromium', args: ARGUMENTS })
}

export type Kind = {
  width?: number
  height?: number
  theme?: 'light' | 'dark'
  isPhone?: boolean
  /** Language and time zone of the browser. */
  locale?: string
  timezoneId?: string
}

export type Visitor = AsyncDisposable & {
  readonly page: Page
  readonly context: BrowserContext
  /** Violations of the policy, errors of the page and requests to other hosts. */
  readonly faults: string[]
  go(path: string): Promise<void>
}

export async function visit(browser: Browser, base: string, kind: Kind = {}): Promise<Visitor> {
  const { width = 1280, height = 860, theme = 'light', isPhone = false, ...place } = kind
  const context = await browser.newContext({
    viewport: isPhone ? { width: 390, height: 844 } : { width, height },
    colorScheme: theme,
    reducedMotion: 'reduce',
    hasTouch: isPhone,
    isMobile: isPhone,
    ...place,
    // axe is injected by the test; the policy of the page stays in force and is checked by `faults` of the other pages.
    bypassCSP: false,
  })
  context.setDefaultTimeout(PATIENCE_MS)
  const page = await context.newPage()
  const faults: string[] = []
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) faults.push(message.text())
  })
  page.on('pageerror', (error) => faults.push(String(error)))
  context.on('request', (request) => {
    // A frame without an origin makes the script of a thread itself.
    if (![base, 'data:', 'blob:null/'].some((allowed) => request.url().startsWith(allowed)))
      faults.push(`request to ${request.url()}`)
  })
  return {
    page,
    context,
    faults,
    go: async (path) => void (await page.goto(`${base}/console${path}`)),
    async [Symbol.asyncDispose]() {
      await context.close()
      deepEqual(faults, [])
    },
  }
}

export async function signIn(page: Page, base: string, identity: string, secret: string): Promise<void> {
  await page.goto(`${base}/console/sign-in`)
  await page.getByLabel('Username or email').fill(identity)
  await page.getByLabel('Password').fill(secret)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Domains' }).waitFor()
}

/** What axe finds on the page, one line for each rule. Its code runs through the debugger, so that the policy stays in force. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  const { readFileSync } = await import('node:fs')
  await page.evaluate(readFileSync(AXE, 'utf8'))
  const results = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run(): Promise<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }> }
    }
    return await axe.run()
  })
  return results.violations.map(({ id, nodes }) =>
    `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary ?? ''}`).join(' | ')}`.slice(0, 600),
  )
}
