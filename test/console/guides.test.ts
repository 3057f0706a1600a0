// docs/guides/console.md: the guides are pages of the console, with the addresses of the installation, linked from each screen
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { GUIDES, guideOf } from '../../console/rooms/guides/guide-of.ts'
import { freePorts } from '../harness/ports.ts'
import { accessibilityFaults, hasNoBrowser, visit, signIn } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

test('each screen has a guide, and each of these guides is a file', () => {
  expect(GUIDES.filter((name) => !existsSync(`docs/guides/${name}.md`))).toEqual([])
  expect([
    guideOf('/d/1/tasks/2/runs/3'),
    guideOf('/d/1'),
    guideOf('/platform/users'),
    guideOf('/platform/workers/1'),
    guideOf('/'),
    guideOf('/nowhere'),
  ]).toEqual(['tasks', 'console', 'accounts-and-mail', 'monitor', 'tenants', 'console'])
})

describe.skipIf(hasNoBrowser)('guides in the console (needs Chromium)', () => {
  let running: RunningConsole
  let domain: string
  let coap: string

  beforeAll(async () => {
    ;[coap = ''] = (await freePorts(1)).map(String)
    running = await startConsole({ SKEIN_COAP_PORT: coap })
    domain = await running.made('/domains', { name: 'Guides' })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  test.each([
    ['desktop', { theme: 'light' }],
    ['phone', { theme: 'dark', isPhone: true }],
  ] as const)(
    'on a %s, a screen leads to its guide, whose commands have the addresses of the installation',
    async (_kind, kind) => {
      const { base } = running.installation
      await using visitor = await visit(running.browser, base, kind)
      const { page } = visitor
      await signIn(page, base, 'admin', 'the-first-admin')
      await visitor.go(`/d/${domain}/channels`)
      await page.getByRole('link', { name: 'Guide for this page' }).click()
      const guide = page.locator('article.guide')
      await guide.getByRole('heading', { level: 1 }).waitFor()
      await guide.getByRole('heading', { name: 'Publish and read' }).waitFor()
      expect(new URL(page.url()).pathname).toBe(`/console/d/${domain}/guides`)
      await expect.poll(async () => (await guide.locator('pre').allTextContents()).join('\n')).toContain(`BASE=${base}`)
      const text = (await guide.textContent()) ?? ''
      expect(text).not.toMatch(/^#{1,6} |```|\]\(/m)
      // Neither in its commands nor in its sentences.
      expect(text).not.toContain('http://127.0.0.1:8080')
      expect(await page.title()).toMatch(/· Skein$/)
      expect(await accessibilityFaults(page)).toEqual([])
      // Nothing is wider than the screen.
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
      await visitor.go(`/d/${domain}/guides/coap`)
      await guide.getByText(`coap://127.0.0.1:${coap}/m/`).first().waitFor()
      // The navigation of the domain is still there, and so are links between guides and to their parts.
      await visitor.go(`/d/${domain}/guides`)
      await guide
        .getByRole('link', { name: /console/i })
        .first()
        .click()
      await guide.getByRole('link', { name: 'charts', exact: true }).first().click()
      await expect.poll(() => new URL(page.url()).hash).toBe('#charts')
      await guide.getByRole('heading', { name: 'Charts' }).waitFor()
    },
  )

  test('a guide that does not exist is said inside the frame', async () => {
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go('/guides/nothing')
    await page.getByText('Not found').waitFor()
    await page.getByRole('button', { name: 'Account' }).waitFor()
  })
})
