"""The style sheet of an HTML report. It is inline, and named by hash in the report's security policy."""

from __future__ import annotations

from ullage.views.palette import SANS, variables

SERIF = '"Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", Georgia, "Liberation Serif", serif'

LAYOUT = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 SANS;overflow-wrap:break-word}
main{max-width:60rem;margin:0 auto;padding:clamp(1.5rem,6vw,5rem) clamp(1.1rem,4vw,2.5rem) 5rem}
h1,h2{font-family:SERIF;font-weight:400;line-height:1.15;text-wrap:balance;margin:0}
h1{font-size:clamp(2rem,6.5vw,3.5rem);letter-spacing:-.015em}
h1::first-letter{text-transform:uppercase}
h1 small{display:block;margin-top:.6rem;font-size:1.25rem;letter-spacing:0;color:var(--muted)}
h1 strong{font-weight:400;color:var(--ofu);white-space:nowrap}
h1 .long{white-space:normal}
.whole{white-space:nowrap}
.brief h1{font-size:clamp(1.8rem,4.6vw,2.6rem);text-wrap:wrap}
.brief h1 small{margin-top:.25rem;font-size:1.1rem}
.brief .eyebrow{max-width:none;margin-bottom:.5rem}
.brief .lede{max-width:none;font-size:1.15rem;margin-top:.6rem}
main:has(>.brief){padding-top:clamp(1.2rem,3vw,2.2rem)}
section.first{margin-top:1.5rem}
.first h2{font-size:1.3rem}
.first figure,.first .scroll{margin-top:.5rem}
.first .how{font-size:.875rem;line-height:1.45;max-width:none;margin:.3rem 0 0}
.first ol.notes{max-width:none;margin:.4rem 0;font-size:.925rem}
.first ol.notes>li{margin:.15rem 0}
h2{font-size:1.75rem;letter-spacing:-.005em}
h3{font-size:1rem;font-weight:600;margin:2.25rem 0 .5rem}
p{max-width:42rem;margin:.6rem 0;text-wrap:pretty}
a{color:var(--ofu)}
.eyebrow{margin:0 0 1.2rem;color:var(--muted);font-size:.95rem}
.lede{font:1.25rem/1.5 SERIF;margin:1.2rem 0 0}
.lede,.key dd{font-variant-numeric:lining-nums}
.how{color:var(--muted)}
.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:1.4rem 2rem;margin:2.6rem 0 0;padding:1.6rem 0;
border:solid var(--rule);border-width:1px 0}
.key div{min-width:0}
.key dt{color:var(--muted);font-size:.875rem;line-height:1.35}
.key dd{margin:.1rem 0 0;font:1.6rem/1.25 SERIF}
.key small{display:block;font:.875rem/1.4 SANS;color:var(--muted)}
.command{margin:1.6rem 0 0;color:var(--muted);font-size:.875rem}
.command+.command{margin-top:.3rem}
code{font:.875em/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;overflow-wrap:anywhere;color:var(--ink)}
section{margin-top:clamp(3.5rem,8vw,5.5rem)}
figure{margin:1.8rem 0 0}
.picture{display:block;width:100%;height:auto}
.phone{display:none;max-width:30rem}
.scroll{overflow-x:auto;margin-top:1.2rem;scrollbar-width:thin}
.scroll:focus-visible,button:focus-visible,a:focus-visible{outline:2px solid var(--ofu);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.875rem;line-height:1.4;font-variant-numeric:tabular-nums lining-nums}
th,td{padding:.45rem .5rem;text-align:right;white-space:nowrap;vertical-align:top;border-bottom:1px solid var(--rule)}
th:first-child,td:first-child{padding-left:0}
th:last-child,td:last-child{padding-right:0}
thead th{font-weight:400;color:var(--muted);vertical-align:bottom;border-bottom-color:var(--muted);white-space:normal}
tbody th,tfoot th{font-weight:400;text-align:left}
thead th:first-child{text-align:left}
table.numbers{width:auto;min-width:min(100%,32rem)}
.words{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8rem;max-width:24rem}
tbody th.words{min-width:9rem}
td.strong{font-weight:600}
td.doubt{color:var(--doubt)}
thead button{all:unset;cursor:pointer;color:inherit}
thead button:hover{color:var(--ink);text-decoration:underline;text-underline-offset:.2em}
th[aria-sort] button{color:var(--ink)}
th[aria-sort=ascending] button::after{content:"\\00a0↑"}
th[aria-sort=descending] button::after{content:"\\00a0↓"}
.more{color:var(--muted);font-size:.875rem}
.notes{padding-left:1.1rem;max-width:42rem}
.notes li{margin:.5rem 0}
.notes details>ul{padding-bottom:.5rem}
.notes summary{cursor:pointer}
.notes strong{display:inline-block;font-weight:600}
.notes strong::first-letter{text-transform:uppercase}
.notes ul{list-style:none;padding:0;margin:.15rem 0 0;color:var(--muted);font-size:.875rem;line-height:1.5}
.notes ul li{margin:.1rem 0}
ol.notes{padding-left:1.6rem;max-width:48rem}
ol.notes>li{margin:.9rem 0}
ol.notes>li::marker{color:var(--muted);font-variant-numeric:tabular-nums}
.tools{display:flex;flex-wrap:wrap;gap:.4rem 1rem;align-items:center;max-width:none;
margin:1.2rem 0 -.6rem;font-size:.875rem;color:var(--muted)}
figure .tools{margin:.6rem 0 0}
.tools label{display:flex;gap:.4rem;align-items:center;min-width:0}
.tools input,.tools button{font:inherit;color:var(--ink);accent-color:var(--ofu)}
.tools input[type=search],.tools button{background:var(--paper);border:1px solid var(--muted);border-radius:3px;
padding:.2rem .5rem;min-width:0}
.tools input[type=range]{width:min(16rem,50vw)}
.tools button{cursor:pointer;min-width:1.9rem}
.tools summary{cursor:pointer}
.tools details[open]{flex-basis:100%}
.tools fieldset{display:flex;flex-wrap:wrap;gap:.3rem 1rem;border:0;margin:.3rem 0;padding:0}
.tools :focus-visible{outline:2px solid var(--ofu);outline-offset:2px}
.heat{margin-top:1.2rem}
.heat canvas{display:block;max-width:100%}
.heat canvas.leads{cursor:pointer}
.heat canvas:focus-visible,summary:focus-visible,svg a:focus-visible{outline:2px solid var(--ofu);outline-offset:2px}
.heat .more{min-height:2.8em}
svg a:hover text{text-decoration:underline}
[data-zoom]{cursor:crosshair;touch-action:pan-y;user-select:none;-webkit-user-select:none}
[data-zoom] line{vector-effect:non-scaling-stroke}
footer{margin-top:5rem;padding-top:1.2rem;border-top:1px solid var(--rule);color:var(--muted);font-size:.875rem}
@media screen and (max-width:45rem){
.page{display:none}.phone{display:block}
.scroll thead .long{min-width:6.5rem}
.scroll tr>:first-child{position:sticky;left:0;z-index:1;background:var(--paper);min-width:7rem;padding-right:.5rem}
}
@media print{
@page{margin:18mm 16mm}
main{max-width:none;padding:0}
body{font-size:10pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}
section{margin-top:2.2rem}
h2,h3,.how{break-after:avoid}
figure,thead,tr,.key,.how{break-inside:avoid}
thead{display:table-header-group}
.scroll{overflow:visible}
table,table *{font-size:7pt!important}
table{min-width:0!important;width:100%}
td,th{padding:.25em .6em .25em 0!important;min-width:0!important;overflow-wrap:anywhere}
thead th{overflow-wrap:normal!important}
td.words{min-width:7em!important}
.tools,.pointer,.heat .more,.heat details{display:none}
thead button{display:contents}
.notes details::details-content{content-visibility:visible;height:auto}
thead button::after{content:none!important}
}
"""

# What stands above a report on a site of pages.
SITE = """
.site{max-width:60rem;margin:0 auto;padding:1rem clamp(1.1rem,4vw,2.5rem) 0;font-size:.875rem}
.site nav{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding-bottom:.7rem;border-bottom:1px solid var(--rule)}
.site nav a{color:var(--muted);text-decoration:none;padding:.25rem 0}
.site nav a:hover,.site nav a:focus-visible{color:var(--ink);text-decoration:underline;text-underline-offset:.2em}
.site nav a[aria-current]{color:var(--ink);font-weight:600}
.site p{max-width:none;margin:.6rem 0;color:var(--muted)}
.site p.doubt{color:var(--doubt)}
.site p.newer{color:var(--ink)}
.site form{display:flex;flex-wrap:wrap;gap:.5rem .8rem;align-items:end;margin:.7rem 0 0}
.site label{display:flex;flex-direction:column;color:var(--muted);min-width:0}
.site input,.site select,.site form button{font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--muted);
border-radius:3px;padding:.3rem .5rem;min-width:0;max-width:100%}
.site input[name=where]{width:min(16rem,80vw)}
.site input[name=since],.site input[name=until],.site input[name=against]{width:7.5rem}
.site form button{cursor:pointer}
.site input,.site select,.site form button{box-sizing:border-box;height:2.1rem}
.site input:focus-visible,.site select:focus-visible{outline:2px solid var(--ofu);outline-offset:1px}
.skip{position:absolute;left:-100vw}
.skip:focus{position:static}
body>.site+main{padding-top:clamp(1.5rem,4vw,3rem)}
body>.site+main:has(>.brief){padding-top:1rem}
@media print{.site{display:none}}
"""


def style() -> str:
    """Return the style sheet: the palette as variables, the rules of pictures, the layout."""
    return variables() + LAYOUT.replace("SANS", SANS).replace("SERIF", SERIF)
