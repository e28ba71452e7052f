"""Words that stand for sites: a site's name, or a tag that several bear. Pure.

A word is looked for among the sites first, then among the tags; none is both (site_rules sees to
it), so the order never matters in a valid file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from federation.mesh_file.site_keys import SiteKeys


class SiteWords:
    """What each word of a mesh file stands for, worked out once."""

    def __init__(self, sites: Mapping[str, SiteKeys]) -> None:
        self._sites = sites
        self._tagged: dict[str, list[str]] = {}
        for name, site in sites.items():
            for tag in dict.fromkeys(site.tags):
                self._tagged.setdefault(tag, []).append(name)

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that some site bears, in the order of the file."""
        return tuple(self._tagged)

    def stands_for(self, word: str) -> tuple[str, ...]:
        """The sites of one word, in the order of the file; none for an unknown word."""
        if word in self._sites:
            return (word,)
        return tuple(self._tagged.get(word, ()))

    def sites_of(self, words: Iterable[str]) -> tuple[str, ...]:
        """The sites of all these words, each once; unknown words are passed over."""
        return tuple(dict.fromkeys(site for word in words for site in self.stands_for(word)))

    def all_but(self, words: Iterable[str]) -> tuple[str, ...]:
        """The sites that none of these words stands for, in the order of the file."""
        without = set(self.sites_of(words))
        return tuple(site for site in self._sites if site not in without)
