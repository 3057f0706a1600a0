/** The frame of every screen in a domain: navigation, domain switcher, requests, theme, account. */
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useLocation, useNavigate } from '@tanstack/react-router'
import { Suspense, useEffect, useRef, useState } from 'react'
import { consoleBase } from '../api/base.ts'
import { query } from '../api/queries.ts'
import { signOut } from '../api/session.ts'
import { Button, Menu } from '../design/controls.tsx'
import { formatCount } from '../design/display.tsx'
import { Icon } from '../design/icon.tsx'
import { Dialog, Toasts } from '../design/layers.tsx'
import { paths } from '../paths.ts'
import { useKeys } from './keyboard.ts'
import { later } from './later.tsx'
import { SECTIONS } from './navigation.ts'
import { OpenAlarms } from './open-alarms.tsx'
import { Palette } from './palette.tsx'
import { SessionDialog } from './session-dialog.tsx'
import { useSession } from './session.ts'
import { reportError } from './states.tsx'
import { setTheme, useTheme } from './theme.ts'
import type { Theme } from './theme.ts'
import { useDomainId } from './url.ts'
import { WAITING, isOpen } from './waiting-invitations.ts'

/** A new invitation is shown after this time on a page that stays open. */
const INVITATIONS_MS = 60_000

// The frame is on the first screen, and these are not.
const RequestsDrawer = later(async () => (await import('./requests-drawer.tsx')).RequestsDrawer)
const ShortcutsDialog = later(async () => (await import('./shortcuts.tsx')).ShortcutsDialog)

const brandIcon = new URL('../icon.svg', import.meta.url).href

type Layer = 'palette' | 'requests' | 'shortcuts' | 'navigation' | undefined

export function Frame() {
  const domain = useDomainId()
  const [layer, setLayer] = useState<Layer>()
  const location = useLocation()
  const navigate = useNavigate()
  const main = useRef<HTMLElement>(null)
  const close = () => setLayer(undefined)
  useEffect(() => {
    setLayer(undefined)
  }, [location.pathname])
  const jumps = SECTIONS.flatMap(({ links }) => links).map(({ key, to }): [string, () => void] => [
    `g ${key}`,
    () => void (domain === '' ? undefined : navigate({ to: to(domain) })),
  ])
  useKeys({
    'mod+k': () => setLayer('palette'),
    '?': () => setLayer('shortcuts'),
    '/': () => document.querySelector<HTMLInputElement>('[data-filter]')?.focus(),
    ...Object.fromEntries(jumps),
  })
  return (
    <>
      <div className="shell">
        <header className="shell-top">
          <a
            className="skip"
            href={`${consoleBase.pathname.replace(/\/$/, '')}${location.href}#main`}
            onClick={(event) => (event.preventDefault(), main.current?.focus())}
          >
            Skip to the content
          </a>
          <span className="only-phone">
            <Button kind="quiet" icon="menu" label="Navigation" onClick={() => setLayer('navigation')} />
          </span>
          <div className="grow">
            <Crumbs domain={domain} />
          </div>
          <span className="only-desktop">
            <Button kind="quiet" icon="search" onClick={() => setLayer('palette')}>
              <span className="muted">Find</span>
              <kbd className="kbd">Ctrl K</kbd>
            </Button>
          </span>
          <span className="only-phone">
            <Button kind="quiet" icon="search" label="Find" onClick={() => setLayer('palette')} />
          </span>
          <GuideLink domain={domain} />
          <Button kind="quiet" icon="code" label="Show this page as commands" onClick={() => setLayer('requests')} />
          <InvitationBadge />
          <ThemeMenu />
          <AccountMenu />
        </header>
        <nav className="shell-side" aria-label="Console">
          <Navigation domain={domain} />
        </nav>
        <main className="shell-main" id="main" ref={main} tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      <Suspense fallback={null}>
        {layer === 'palette' ? <Palette domain={domain} onClose={close} /> : null}
        {layer === 'requests' ? <RequestsDrawer onClose={close} /> : null}
        {layer === 'shortcuts' ? <ShortcutsDialog onClose={close} /> : null}
      </Suspense>
      {layer === 'navigation' ? (
        <Dialog title="Navigation" kind="side" isBare onClose={close}>
          <nav aria-label="Console">
            <Navigation domain={domain} />
          </nav>
        </Dialog>
      ) : null}
      <SessionDialog />
      <Toasts />
    </>
  )
}

export function Brand() {
  return (
    <Link to={paths.home()} className="brand">
      <img src={brandIcon} alt="" />
      Skein
    </Link>
  )
}

function Navigation({ domain }: { domain: string }) {
  const session = useSession()
  const isAdmin = session.kind === 'signed-in' && session.role === 'admin'
  return (
    <>
      <Brand />
      <DomainSwitcher domain={domain} />
      {domain === ''
        ? null
        : SECTIONS.map(({ name, links }) => (
            <div key={name}>
              {name === '' ? null : <div className="nav-label">{name}</div>}
              {links.map((link) => (
                <Link
                  key={link.name}
                  to={link.to(domain)}
                  className="nav-link"
                  activeOptions={{ exact: link.isExact === true, includeSearch: false }}
                >
                  <Icon name={link.icon} />
                  {link.name}
                  {link.hasOpenAlarms === true ? <OpenAlarms domain={domain} /> : null}
                </Link>
              ))}
            </div>
          ))}
      {isAdmin ? (
        <div>
          <div className="nav-label">Platform</div>
          <Link to={paths.platform()} className="nav-link" activeOptions={{ exact: true }}>
            <Icon name="health" />
            Health and workers
          </Link>
          <Link to={paths.users()} className="nav-link">
            <Icon name="members" />
            Users
          </Link>
        </div>
      ) : null}
    </>
  )
}

function DomainSwitcher({ domain }: { domain: string }) {
  const navigate = useNavigate()
  const { data } = useQuery(
    query('GET /domains', {
      query: { limit: 100, status: 'enabled', order: 'name', dir: 'asc' },
      isLookup: true,
    }),
  )
  const { data: current } = useQuery({
    ...query('GET /domains/{domain_id}', { params: { domain_id: domain }, isLookup: true }),
    enabled: domain !== '',
  })
  const domains = data?.domains ?? []
  return (
    <Menu
      label="Switch domain"
      kind="plain"
      align="start"
      className="switcher"
      items={[
        ...domains.map(({ id, name }) => ({
          label: name,
          isCurrent: id === domain,
          onSelect: () => void navigate({ to: paths.overview(id) }),
        })),
        ...(domains.length === 0 ? [] : (['line'] as const)),
        { label: 'All domains', icon: 'overview' as const, onSelect: () => void navigate({ to: paths.home() }) },
      ]}
    >
      <span className="grow clip" style={{ textAlign: 'left' }}>
        {domain === '' ? 'Choose a domain' : (current?.name ?? '…')}
      </span>
      <Icon name="down" size="small" />
    </Menu>
  )
}

function Crumbs({ domain }: { domain: string }) {
  const { pathname } = useLocation()
  const links = SECTIONS.flatMap((section) => section.links)
  const here = pathname.replace(/\/$/, '')
  const section = links
    .filter(
      ({ to, isExact }) =>
        domain !== '' && (here === to(domain) || (isExact !== true && here.startsWith(`${to(domain)}/`))),
    )
    .toSorted((a, b) => b.to(domain).length - a.to(domain).length)[0]
  const { data: current } = useQuery({
    ...query('GET /domains/{domain_id}', { params: { domain_id: domain }, isLookup: true }),
    enabled: domain !== '',
  })
  if (domain === '')
    return here.includes(`${paths.platform()}/`) ? (
      <nav aria-label="You are here">
        <ol className="crumbs">
          <li>
            <Link to={paths.platform()} className="clip">
              Platform
            </Link>
          </li>
        </ol>
      </nav>
    ) : null
  return (
    <nav aria-label="You are here">
      <ol className="crumbs">
        <li className="only-desktop">
          <Link to={paths.overview(domain)} activeProps={{}} className="clip">
            {current?.name ?? '…'}
          </Link>
          {section === undefined ? null : <Icon name="right" size="small" />}
        </li>
        <li>
          {section === undefined ? null : here === section.to(domain) ? (
            <span className="clip">{section.name}</span>
          ) : (
            <Link to={section.to(domain)} className="clip">
              {section.name}
            </Link>
          )}
        </li>
      </ol>
    </nav>
  )
}

const THEMES: readonly (readonly [Theme, string, 'sun' | 'moon' | 'system'])[] = [
  ['light', 'Light', 'sun'],
  ['dark', 'Dark', 'moon'],
  ['system', 'As the system', 'system'],
]

export function ThemeMenu() {
  const theme = useTheme()
  const icon = THEMES.find(([name]) => name === theme)?.[2] ?? 'system'
  return (
    <Menu
      label="Theme"
      icon={icon}
      items={THEMES.map(([name, label, its]) => ({
        label,
        icon: its,
        isCurrent: name === theme,
        onSelect: () => setTheme(name),
      }))}
    />
  )
}

/** A link to the guide that explains the screen. */
function GuideLink({ domain }: { domain: string }) {
  const { pathname } = useLocation()
  return (
    <Link
      to={paths.guide(domain)}
      search={{ of: pathname }}
      className="button quiet square"
      title="Guide for this page"
      aria-label="Guide for this page"
    >
      <Icon name="help" />
    </Link>
  )
}

/** How many invitations wait for an answer, on every page. */
function InvitationBadge() {
  const { data } = useQuery({
    ...query('GET /invitations', { query: WAITING, isLookup: true }),
    refetchInterval: INVITATIONS_MS,
  })
  const count = data?.invitations.filter(isOpen).length ?? 0
  if (count === 0) return null
  return (
    <Link to={paths.home()} className="button quiet" title="Accept or reject them on the first page">
      <span className="badge">{formatCount(count)}</span>
      <span className="only-desktop">{count === 1 ? 'invitation' : 'invitations'}</span>
      <span className="visually-hidden only-phone">{count === 1 ? 'invitation' : 'invitations'}</span>
    </Link>
  )
}

function AccountMenu() {
  const navigate = useNavigate()
  return (
    <Menu
      label="Account"
      icon="user"
      items={[
        { label: 'Your account', icon: 'user', onSelect: () => void navigate({ to: paths.account() }) },
        { label: 'Notifications', icon: 'send', onSelect: () => void navigate({ to: paths.notifications() }) },
        'line',
        {
          label: 'Sign out',
          icon: 'out',
          onSelect: () => void signOut().catch((error: unknown) => reportError(error, 'Signing out failed')),
        },
      ]}
    />
  )
}
