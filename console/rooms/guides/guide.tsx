/** A guide inside the console: its commands have the addresses of this installation, and its links stay here. */
import { useQuery } from '@tanstack/react-query'
import { Link, useLocation } from '@tanstack/react-router'
import { createElement, useEffect } from 'react'
import type { ReactNode } from 'react'
import { shownBase } from '../../api/base.ts'
import { readGuide } from '../../api/guides.ts'
import type { Addresses } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Code } from '../../design/controls.tsx'
import { paths } from '../../paths.ts'
import { QueryView } from '../../shell/states.tsx'
import { useDomainId, useParam, useView } from '../../shell/url.ts'
import { withAddresses } from './addresses.ts'
import { guideOf } from './guide-of.ts'
import './guides.css'

const INDEX = 'README.md'
const GUIDE_ADDRESS = /^\/docs\/guides\/([a-z0-9-]+)\.md(#[^#]*)?$/
/** What the renderer of the guides makes. Other elements are shown as their text. */
const SHOWN = new Set(
  ['p', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'strong', 'em'].concat([
    'table',
    'thead',
    'tbody',
    'tr',
    'th',
    'td',
  ]),
)

type Place = { domain: string; guide: string; addresses: Partial<Addresses> }

export function Guide() {
  const domain = useDomainId()
  const [of] = useView('of')
  const named = useParam('guide')
  // A user who comes from another screen gets the guide that explains that screen.
  const guide = named === '' && of !== '' && !of.includes('/guides') ? guideOf(of) : named
  const { hash } = useLocation()
  const result = useQuery({
    queryKey: ['guide', guide],
    queryFn: async ({ signal }) => await readGuide(guide === '' ? INDEX : `${guide}.md`, signal),
    // It is part of the installation.
    staleTime: Infinity,
  })
  const addresses = useQuery(query('GET /connect', { isPublic: true }))
  const title = result.data?.querySelector('h1')?.textContent ?? 'Guides'
  useEffect(() => {
    document.title = `${title} · Skein`
  }, [title])
  const isThere = result.data !== undefined
  useEffect(() => {
    if (isThere && hash !== '') document.getElementById(decodeURIComponent(hash.replace(/^#/, '')))?.scrollIntoView()
  }, [isThere, hash])
  return (
    <QueryView result={result}>
      {(content) => (
        <article className="guide">
          {guide === '' ? null : (
            <p>
              <Link to={paths.guide(domain)}>All guides</Link>
            </p>
          )}
          {childrenOf(content, { domain, guide, addresses: addresses.data ?? {} })}
        </article>
      )}
    </QueryView>
  )
}

const childrenOf = (element: Element, place: Place): ReactNode[] =>
  [...element.childNodes].map((node, at) => shown(node, at, place))

function shown(node: ChildNode, key: number, place: Place): ReactNode {
  if (!(node instanceof Element)) return node.textContent
  const tag = node.tagName.toLowerCase()
  if (tag === 'pre')
    return <Code key={key} label="commands" text={withAddresses(node.textContent ?? '', shownBase, place.addresses)} />
  // A command in a sentence is one that the reader copies too.
  if (tag === 'code') return <code key={key}>{withAddresses(node.textContent ?? '', shownBase, place.addresses)}</code>
  if (tag === 'a') return <GuideLink key={key} element={node} place={place} />
  if (tag === 'div')
    return (
      <div key={key} className="scroll-x" tabIndex={0} role="region" aria-label={`Table ${key}`}>
        {childrenOf(node, place)}
      </div>
    )
  if (!SHOWN.has(tag)) return node.textContent
  const start = Number(node.getAttribute('start') ?? 1)
  const id = node.getAttribute('id')
  return createElement(
    tag,
    {
      key,
      ...(id === null ? {} : { id }),
      ...(tag === 'ol' && start !== 1 ? { start } : {}),
      ...(tag === 'table' ? { className: 'plain' } : {}),
    },
    ...childrenOf(node, place),
  )
}

function GuideLink({ element, place }: { element: Element; place: Place }) {
  const href = element.getAttribute('href') ?? ''
  const [, name, part = ''] = GUIDE_ADDRESS.exec(href) ?? []
  const content = childrenOf(element, place)
  if (href.startsWith('#'))
    return (
      <Link to={paths.guide(place.domain, place.guide)} hash={href.slice(1)}>
        {content}
      </Link>
    )
  if (name !== undefined)
    return (
      <Link
        to={paths.guide(place.domain, name === 'README' ? '' : name)}
        {...(part === '' ? {} : { hash: part.slice(1) })}
      >
        {content}
      </Link>
    )
  return href.startsWith('https://') ? (
    <a href={href} target="_blank" rel="noreferrer">
      {content}
    </a>
  ) : (
    content
  )
}
