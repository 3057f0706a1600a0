// docs/guides/console.md: what a role does not allow is said before a form is filled in, and an invitation is seen on every page
import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newestMail } from '../harness/mail.ts'
import { until } from '../harness/until.ts'
import { accessibilityFaults, hasNoBrowser, signIn, visit } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const SECRET = 'correct horse'

describe.skipIf(hasNoBrowser)('people in the console (needs Chromium)', () => {
  let running: RunningConsole
  let domain: string
  let client: string
  let consumer: string
  let rule: string
  let channel: string
  let group: string
  let task: string
  let run: string
  let workflow: string

  beforeAll(async () => {
    running = await startConsole()
    domain = await running.made('/domains', { name: 'Plant' })
    client = await running.made(`/${domain}/clients`, { name: 'pump' })
    channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    await running.api('POST', `/m/${domain}/c/${channel}`, [{ n: 'a', v: 1 }])
    const made = { name: 'readings', channels: [channel], from: 'earliest', max_deliver: 1 }
    consumer = await running.made(`/${domain}/consumers`, made)
    const path = `/${domain}/consumers/${consumer}`
    const { messages } = await running.api<{ messages: { position: string }[] }>('GET', `${path}/messages`)
    await running.api('POST', `${path}/nack`, { positions: messages.map(({ position }) => position) })
    await until(
      async () => (await running.api<{ dead_letters: number }>('GET', path)).dead_letters === 1,
      'the dead letter',
    )
    rule = await running.made(`/${domain}/rules`, {
      name: 'heat',
      source: { type: 'messages' },
      condition: 'value > 30.0',
    })
    group = await running.made(`/${domain}/groups`, { name: 'Hall 1' })
    const file = readFileSync('examples/add/add.wasm').toString('base64')
    task = await running.made('/tasks', { name: 'add', domain_id: domain, file })
    const started = await running.api<{ run_id: string }>('POST', `/tasks/${task}/invoke`, {
      inputs: [1, 2],
      wait: '10s',
    })
    run = started.run_id
    const tasks = [{ name: 'first', function: 'add', inputs: [1, 2], file }]
    workflow = await running.made('/workflows', { name: 'report', domain_id: domain, tasks })
    await running.api('POST', `/${domain}/certs/issue/${client}`, { ttl: '1h' })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const newUser = async (username: string) =>
    await running.made('/users', {
      first_name: username,
      last_name: 'Member',
      email: `${username}@example.com`,
      credentials: { username, secret: SECRET },
    })
  const member = async (username: string, relation: string) => {
    const user = await newUser(username)
    await running.api('POST', `/domains/${domain}/users/assign`, { relation, user_ids: [user] })
    return user
  }
  const asUser = async (username: string, isPhone = false) => {
    const visitor = await visit(running.browser, running.installation.base, { isPhone })
    await signIn(visitor.page, running.installation.base, username, SECRET)
    return visitor
  }
  /** What the button says about itself: undefined, while it can be pressed. */
  const reasonOf = async (page: Page, name: string) => {
    const button = page.getByRole('button', { name, exact: true }).first()
    await button.waitFor()
    return (await button.getAttribute('aria-disabled')) === 'true' ? await button.getAttribute('title') : undefined
  }

  test('a viewer sees what is not allowed before a form is filled in, with the action that is missing', async () => {
    await member('vera', 'viewer')
    await using visitor = await asUser('vera')
    const { page } = visitor
    for (const [path, button, action] of [
      [`/d/${domain}/clients`, 'New client', 'client_create'],
      [`/d/${domain}/channels`, 'New channel', 'channel_create'],
      [`/d/${domain}/groups`, 'New group', 'group_create'],
      [`/d/${domain}/tasks`, 'New task', 'task_create'],
      [`/d/${domain}/workflows`, 'New workflow', 'task_create'],
      [`/d/${domain}/connect`, 'Create device', 'client_create'],
      [`/d/${domain}/provisioning`, 'Create device', 'client_create'],
      [`/d/${domain}/settings`, 'Save', 'update'],
      [`/d/${domain}/settings`, 'Delete', 'delete'],
      [`/d/${domain}/clients/${client}`, 'Edit', 'update'],
      [`/d/${domain}/clients/${client}`, 'Show secret', 'update'],
      [`/d/${domain}/clients/${client}/connections`, 'Connect', 'connect_to_channel'],
      [`/d/${domain}/consumers`, 'New consumer', 'consumer_create'],
      [`/d/${domain}/consumers/${consumer}`, 'Edit', 'consumer_update'],
      [`/d/${domain}/consumers/${consumer}`, 'Move', 'consumer_update'],
      [`/d/${domain}/consumers/${consumer}/dead-letters`, 'Retry all', 'consumer_update'],
      [`/d/${domain}/consumers/${consumer}/dead-letters`, 'Discard the dead letter', 'consumer_update'],
      [`/d/${domain}/rules`, 'New rule', 'rule_create'],
      [`/d/${domain}/rules/${rule}`, 'Edit', 'rule_update'],
      [`/d/${domain}/rules/${rule}`, 'Disable', 'rule_update'],
      [`/d/${domain}/channels/${channel}`, 'Send', 'publish'],
      [`/d/${domain}/channels/${channel}`, 'Edit', 'update'],
      [`/d/${domain}/channels/${channel}/live`, 'Send one', 'publish'],
      [`/d/${domain}/channels/${channel}/clients`, 'Connect', 'connect_to_client'],
      [`/d/${domain}/groups/${group}`, 'Edit', 'update'],
      [`/d/${domain}/groups/${group}`, 'Group inside', 'subgroup_create'],
      [`/d/${domain}/groups/${group}`, 'Add a client', 'set_child'],
      [`/d/${domain}/tasks/${task}`, 'Start', 'task_start'],
      [`/d/${domain}/tasks/${task}`, 'Run', 'task_start'],
      [`/d/${domain}/tasks/${task}/module`, 'Choose a file', 'task_update'],
      [`/d/${domain}/tasks/${task}/rules`, 'Schedule', 'task_update'],
      [`/d/${domain}/tasks/${task}/rules`, 'Trigger', 'task_update'],
      [`/d/${domain}/tasks/${task}/rules`, 'Edit', 'task_update'],
      [`/d/${domain}/tasks/${task}/runs/${run}`, 'Run again with these', 'task_start'],
      [`/d/${domain}/workflows/${workflow}`, 'Start', 'task_start'],
      [`/d/${domain}/workers`, 'Join a worker', 'worker_manage'],
      [`/d/${domain}/import`, 'Choose a file', 'client_create'],
    ] as const) {
      await visitor.go(path)
      await expect
        .poll(async () => await reasonOf(page, button), { message: `${path} ${button}` })
        .toMatch(new RegExp(`^None of your roles .* has the action ${action}$`))
    }
    // What a menu offers says it too.
    for (const [path, menu, item, reason] of [
      [`/d/${domain}/channels/${channel}`, 'More actions', 'Delete', /has the action delete$/],
      [`/d/${domain}/channels/${channel}`, 'More actions', 'Disable', /has the action update$/],
      [`/d/${domain}/rules/${rule}`, 'More actions', 'Delete', /has the action rule_delete$/],
      [`/d/${domain}/groups/${group}`, 'More actions', 'Delete', /has the action delete$/],
      [`/d/${domain}/tasks/${task}`, 'More actions', 'Delete', /has the action task_delete$/],
      [`/d/${domain}/workflows/${workflow}`, 'More actions', 'Delete', /has the action task_delete$/],
      [`/d/${domain}/workers`, /^Actions for/, 'Drain', /belongs to the platform/],
    ] as const) {
      await visitor.go(path)
      await page.getByRole('button', { name: menu }).first().click()
      await expect
        .poll(async () => await page.getByRole('menuitem', { name: item }).getAttribute('title'), {
          message: `${path} ${item}`,
        })
        .toMatch(reason)
    }
    // So does a form, of a client that is chosen in it.
    const dialog = page.getByRole('dialog')
    await visitor.go(`/d/${domain}/certificates`)
    await page.getByRole('button', { name: 'Issue certificate' }).click()
    await dialog.getByLabel('Client').selectOption({ label: 'pump' })
    await dialog.getByText(/has the action update\.$/).waitFor()
    const submit = dialog.getByRole('button', { name: 'Issue certificate' })
    expect(await submit.getAttribute('title')).toContain('has the action update')
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('button', { name: 'Revoke' }).click()
    await dialog.getByText(/has the action update\.$/).waitFor()
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    // An address that opens a form does not open it.
    await visitor.go(`/d/${domain}/clients?create=1`)
    await expect.poll(async () => await reasonOf(page, 'New client')).toContain('client_create')
    expect(await page.getByRole('dialog').count()).toBe(0)
  })

  test('an address that no screen has is said inside the frame, and leads to the domains', async () => {
    await using visitor = await running.asAdmin()
    const { page } = visitor
    for (const path of ['/nowhere', `/d/${domain}/nowhere/at/all`]) {
      await visitor.go(path)
      await page.getByRole('heading', { name: 'There is no such page' }).waitFor()
      await page.getByRole('button', { name: 'Account' }).waitFor()
      const skip = page.getByRole('link', { name: 'Skip to the content' })
      expect(await skip.evaluate((link) => (link as unknown as { href: string }).href)).toBe(`${page.url()}#main`)
    }
    await page.getByRole('link', { name: 'Show your domains' }).click()
    await page.getByRole('heading', { name: 'Domains' }).waitFor()
  })

  test('an operator may create, and sees one padlock in place of members, roles and invitations', async () => {
    await member('oskar', 'contributor')
    await using visitor = await asUser('oskar')
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients`)
    expect(await reasonOf(page, 'New client')).toBeUndefined()
    await visitor.go(`/d/${domain}/members`)
    await page.getByText('You do not have access').first().waitFor()
    expect(await page.getByText('You do not have access').count()).toBe(1)
    expect(await accessibilityFaults(page)).toEqual([])
  })

  test('a person without an account is invited by mail, registers with the link, and accepts', async () => {
    const email = 'rosalind@example.com'
    await using admin = await running.asAdmin()
    const { page } = admin
    await admin.go(`/d/${domain}/members`)
    await page.getByRole('button', { name: 'Invite' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Username or email').fill(email)
    // An installation without a mail server does not promise that the mail arrives.
    await dialog.getByText(/This installation has no mail server/).waitFor()
    await dialog.getByLabel('Role').selectOption({ label: 'Operator' })
    await dialog.getByRole('button', { name: 'Invite' }).click()
    const row = page.locator('.list-row').filter({ hasText: email })
    await row.getByText('Not registered').waitFor()
    await row.getByText(/as Operator/).waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await row.getByRole('button', { name: 'Mail again' }).click()
    await page.getByText('Invited again').waitFor()
    await page.route(`**/domains/${domain}/invitations?*`, async (route) => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...((await response.json()) as object), mail_server: true } })
    })
    await page.reload()
    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    await dialog.getByLabel('Username or email').fill('another@example.com')
    await dialog.getByText(/It gets a mail with a link to register/).waitFor()
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    const linkIn = () => /console(\/sign-up#\S+)/.exec(newestMail(running.installation.dataDir, email) ?? '')?.[1]
    const link = await until(linkIn, 'the mail')

    await using visitor = await visit(running.browser, running.installation.base)
    await visitor.go(link)
    const mine = visitor.page
    await mine.getByRole('heading', { name: 'You are invited: create your account' }).waitFor()
    expect(await mine.getByLabel('Email').inputValue()).toBe(email)
    expect(await mine.getByLabel('Email').isEditable()).toBe(false)
    for (const [label, value] of [
      ['First name', 'Rosalind'],
      ['Last name', 'Franklin'],
      ['Username', 'rosalind'],
      ['Password', SECRET],
    ] as const)
      await mine.getByLabel(label).fill(value)
    await mine.getByRole('button', { name: 'Create account' }).click()
    await mine.getByText(/as Operator/).waitFor()
    await mine.getByRole('button', { name: 'Accept' }).click()
    await mine.getByRole('link', { name: /Plant/ }).waitFor()
    // One that is withdrawn is no longer listed.
    await running.api('POST', `/domains/${domain}/invitations`, { email: 'nobody@example.com', relation: 'viewer' })
    await page.reload()
    await row.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Withdraw the invitation of nobody@example.com' }).click()
    await page.getByText('No invitation waits').waitFor()
  })

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)('on a %s, an invitation is announced on every page until it is answered', async (kind, isPhone) => {
    const user = await newUser(`ina-${kind}`)
    await using visitor = await asUser(`ina-${kind}`, isPhone)
    const { page } = visitor
    const badge = page.getByRole('link', { name: /1 ?invitation/ })
    await visitor.go('/account')
    await page.getByRole('heading', { name: 'Your account' }).waitFor()
    expect(await badge.count()).toBe(0)
    await running.api('POST', '/invitations', { user_id: user, domain_id: domain, relation: 'contributor' })
    await page.reload()
    await badge.click()
    await page.getByText(/as Operator/).waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await page.getByRole('button', { name: 'Accept' }).click()
    await badge.waitFor({ state: 'detached' })
  })
})
