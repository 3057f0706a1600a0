// docs/guides/console.md: what a caller may not read is counted, and what waits for another owner says so
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

describe.skipIf(hasNoBrowser)('what the console does not show (needs Chromium)', () => {
  let running: RunningConsole

  beforeAll(async () => {
    running = await startConsole()
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  test('the check of a file counts the changes of entities that the caller may not read', async () => {
    const domain = await running.made('/domains', { name: 'Files' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const check = async () => {
      await visitor.go(`/d/${domain}/import`)
      await page
        .getByLabel('CSV file to import')
        .setInputFiles({ name: 'clients.csv', mimeType: 'text/csv', buffer: Buffer.from('name\npump\nvalve\n') })
      const notice = page.getByText(/The file is right: 2 clients/)
      await notice.waitFor()
      return await notice.textContent()
    }
    expect(await check()).not.toContain('may not read')
    // The answer of the server, as a caller gets it who may read less than they change.
    await page.route('**/clients/import?dry_run=true', async (route) => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...((await response.json()) as object), hidden: 2 } })
    })
    expect(await check()).toContain('2 changes of entities that you may not read are among them.')
    expect(await accessibilityFaults(page)).toEqual([])
  })

  test('a device that another domain has configured for longer is said to wait, until that domain lets it go', async () => {
    const { made, api } = running
    const device = { external_id: 'gateway-0815', external_key: 'the key of the factory 0815' }
    const [seller, buyer] = [await made('/domains', { name: 'Seller' }), await made('/domains', { name: 'Buyer' })]
    const first = await api<{ clients: { id: string }[] }>('POST', `/${seller}/mapping`, device)
    const sold = first.clients[0]?.id ?? ''
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const waiting = page.getByText(/waits for another owner/)

    await visitor.go(`/d/${seller}/clients/${sold}`)
    await page.getByText('Presence').waitFor()
    expect(await waiting.count()).toBe(0)

    await visitor.go(`/d/${buyer}/provisioning`)
    await page.getByLabel('External id').fill(device.external_id)
    await page.getByLabel('External key').fill(device.external_key)
    await page.getByRole('button', { name: 'Create device' }).click()
    await waiting.waitFor()
    expect(await page.textContent('main')).not.toContain('Seller')
    expect(await accessibilityFaults(page)).toEqual([])
    const { clients } = await api<{ clients: { id: string }[] }>('GET', `/${buyer}/clients`)
    await visitor.go(`/d/${buyer}/clients/${clients[0]?.id ?? ''}`)
    await waiting.waitFor()

    await api('DELETE', `/${seller}/clients/configs/${sold}`)
    await page.reload()
    await page.getByText('Presence').waitFor()
    await waiting.waitFor({ state: 'detached' })
  })
})
